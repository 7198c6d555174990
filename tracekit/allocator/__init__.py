"""The allocator's room: settings, the caching allocator as a model, the replay of a recording.

Pure: values in, values out. Files, tables, charts and torch have no place here.
"""
