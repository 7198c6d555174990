"""The model: its size, its loss, and that it asks for memory as the recorded one did."""

from __future__ import annotations

import lzma
import math
import pickle
import weakref
from pathlib import Path
from typing import Any

import pytest

Events = list[tuple[str, int]]


def test_gpt2_small_has_its_parameters(torch: Any, gpt2: Any) -> None:
    with torch.device("meta"):
        model = gpt2.GPT2(gpt2.Config())
    assert model.parameter_count() == 124_439_808
    assert sum(buffer.numel() * 4 for buffer in model.buffers()) == 50_331_648  # the masks, 4 MiB a block


def test_the_head_is_tied(gpt2: Any) -> None:
    model = gpt2.GPT2(gpt2.Config(vocabulary=11, context=4, width=8, heads=2, layers=1))
    assert model.lm_head.weight.data_ptr() == model.transformer["wte"].weight.data_ptr()


def test_an_untrained_model_is_equally_unsure_about_every_word(torch: Any, gpt2: Any) -> None:
    torch.manual_seed(0)
    model = gpt2.GPT2(gpt2.Config(vocabulary=997, context=16, width=64, heads=4, layers=2))
    tokens = torch.randint(997, (4, 17))
    _, loss = model(tokens[:, :-1], tokens[:, 1:])
    assert loss.item() == pytest.approx(math.log(997), abs=0.1)


@pytest.mark.parametrize("options", [{"attention": "sdpa"}, {"checkpoint": True}], ids=str)
def test_the_options_change_memory_and_no_number(torch: Any, gpt2: Any, options: dict[str, Any]) -> None:
    sizes = {"vocabulary": 61, "context": 8, "width": 8, "heads": 2, "layers": 2}
    plain, other = gpt2.GPT2(gpt2.Config(**sizes)), gpt2.GPT2(gpt2.Config(**sizes, **options))
    other.load_state_dict(plain.state_dict())
    tokens = torch.randint(61, (2, 9))
    for model in (plain, other):
        model(tokens[:, :-1], tokens[:, 1:])[1].backward()
    for one, two in zip(plain.parameters(), other.parameters(), strict=True):
        assert torch.allclose(one.grad, two.grad, atol=1e-6)


def test_no_token_sees_what_comes_after_it(torch: Any, gpt2: Any) -> None:
    model = gpt2.GPT2(gpt2.Config(vocabulary=61, context=8, width=8, heads=2, layers=2)).eval()
    tokens = torch.randint(61, (1, 8))
    changed = tokens.clone()
    changed[0, 5] = (changed[0, 5] + 1) % 61
    before, after = model(tokens)[0], model(changed)[0]
    assert torch.allclose(before[0, :5], after[0, :5])
    assert not torch.allclose(before[0, 5:], after[0, 5:])


def forward_events(torch: Any, model: Any, batch: int, sequence: int) -> Events:
    """What a forward pass on meta tensors allocates and frees, in order: bytes of each new storage."""
    found: Events = []
    known = {tensor.untyped_storage()._cdata for tensor in (*model.parameters(), *model.buffers())}

    def dispatch(_mode: Any, operator: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result: Any = operator(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(result):
            storage: Any = tensor.untyped_storage()
            if storage._cdata not in known:
                known.add(storage._cdata)
                found.append(("alloc", storage.nbytes()))

                def end(key: int = storage._cdata, size: int = storage.nbytes()) -> None:
                    known.discard(key)
                    found.append(("free", size))

                weakref.finalize(storage, end)
        return result

    mode = type("Listening", (torch.utils._python_dispatch.TorchDispatchMode,), {"__torch_dispatch__": dispatch})()
    buffer = torch.empty(batch, sequence + 1, dtype=torch.long, device="meta")
    known.add(buffer.untyped_storage()._cdata)
    with mode:
        kept = model(buffer[:, :-1], buffer[:, 1:])
    end = len(found)
    del kept
    return found[:end]


def test_a_forward_pass_asks_for_what_the_recorded_one_asked_for(torch: Any, gpt2: Any, shared: Path) -> None:
    with lzma.open(shared / "captures" / "gpt2_b8_ws8.pickle.xz") as file:
        trace = pickle.load(file)["device_traces"][0]  # noqa: S301  (a recording of this project)
    kinds = {"alloc": "alloc", "free_requested": "free"}
    recorded = [(kinds[event["action"]], event["size"]) for event in trace[191:699] if event["action"] in kinds]
    # what only a GPU does: a copy of the tokens that lie apart, made for the embedding, and cublasLt's workspace
    assert recorded.pop(0) == ("alloc", 65_536)
    assert recorded.pop(1) == ("free", 65_536)
    recorded.remove(("alloc", 1_048_576))
    with torch.device("meta"):
        model = gpt2.GPT2(gpt2.Config())
    assert forward_events(torch, model, 8, 1_024) == recorded
