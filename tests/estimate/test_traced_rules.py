"""What a GPU takes besides its outputs, byte by byte as recorded, and what a script may and may not do."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.estimate.traced import MIB, conditions, need_torch, traced
from tests.test_commands import run
from tracekit.commands import estimate_traced
from tracekit.errors import TracekitError
from tracekit.estimate.traced import answer, cards, kernel, reduction, script
from tracekit.estimate.traced.answer import Estimate
from tracekit.estimate.traced.kernel import Call, Drop, Out, Shape, Take

H200 = cards.card("h200")

Traced = Callable[[str], Estimate]


@pytest.fixture
def trace(tmp_path: Path) -> Traced:
    """Traces two steps of a script whose build is given as text."""
    need_torch()

    def traced(body: str) -> Estimate:
        path = tmp_path / "train.py"
        path.write_text("import torch\nfrom torch import nn\n" + textwrap.dedent(body))
        return answer.estimate(answer.load(f"{path}:build"), {}, conditions(), lambda _: None)

    return traced


LINEAR = """
    def build(device):
        model = nn.Linear(8, 8).to(device)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        def step():
            loss = model(torch.randn(4, 8, device=device)).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            {more}
        return model, optimizer, step
"""


# shape, reduced dimensions, partial sums and semaphores as recorded on an H200
@pytest.mark.parametrize(
    ("sizes", "reduced", "partial", "semaphores"),
    [
        ((8_192, 768), {0}, 50_331_648, 24),
        ((8_192, 3_072), {0}, 138_412_032, 96),
        ((8_192, 2_304), {0}, 139_198_464, 72),
        ((4_096, 10_000), {0}, 138_240_000, 316),
        ((4_096, 512), {0}, 16_777_216, 16),
        ((393_216,), {0}, 192, 4),
        ((64, 64), {0}, 0, 0),
    ],
)
def test_partial_sums_of_a_reduction(sizes: tuple[int, ...], reduced: set[int], partial: int, semaphores: int) -> None:
    strides = tuple(sizes[-1] if dim < len(sizes) - 1 else 1 for dim in range(len(sizes)))
    assert reduction.scratch(sizes, strides, reduced, 4, H200) == (partial, semaphores)


def taken(call: Call) -> list[int]:
    return [step.byte_count for step in kernel.steps(call) if isinstance(step, Take)]


def test_an_embedding_of_many_words_is_sorted() -> None:
    """Every scratch buffer of the golden run's embedding gradient, in order, as recorded."""
    gradient = Shape((8, 1_024, 768), (786_432, 768, 1), 4, "float32")
    indices = Shape((8, 1_024), (1_025, 1), 8, "int64")
    weight = Shape((50_257, 768), (768, 1), 4, "float32")
    arguments = {"grad_output": gradient, "indices": indices, "num_weights": 50_257}
    call = Call("embedding_dense_backward", arguments, [weight], [True], H200)
    assert taken(call) == [
        *(65_536, 65_536, 65_536, 65_536, 150_015),
        *(65_536, 8, 65_536, 1_279, 65_536, 65_536, 1_279, 8, 72_088, 27_681_792),
    ]
    few = Call(
        "embedding_dense_backward", {**arguments, "indices": Shape((3_072,), (1,), 8, "int64")}, [weight], [True], H200
    )
    assert taken(few) == []


def test_whatever_is_taken_is_given_back() -> None:
    x, weight = (
        Shape((8, 64, 64, 64), (262_144, 4_096, 64, 1), 4, "float32"),
        Shape((128, 64, 3, 3), (576, 9, 3, 1), 4, "float32"),
    )
    y = Shape((8, 128, 64, 64), (524_288, 4_096, 64, 1), 4, "float32")
    arguments = {"grad_output": y, "input": x, "weight": weight, "stride": [1, 1], "groups": 1}
    steps = list(kernel.steps(Call("convolution_backward", arguments, [x, weight, None], [True, True, False], H200)))
    held: set[str] = set()
    for step in steps:
        if isinstance(step, Take):
            assert step.key not in held
            held.add(step.key)
        elif isinstance(step, Drop):
            held.remove(step.key)
    assert not held
    assert [step.index for step in steps if isinstance(step, Out)] == [0, 1]


def test_workspaces_by_card_and_by_text() -> None:
    assert (cards.card("a40").cublas_workspace, H200.cublas_workspace) == (8_519_680, 32 * MIB)
    assert cards.parse_workspace(":16384:2") == 32 * MIB
    assert cards.parse_workspace("32MiB") == 32 * MIB
    with pytest.raises(TracekitError, match="is not a cuBLAS workspace"):
        cards.parse_workspace(":8MB")
    with pytest.raises(TracekitError, match="not a card"):
        cards.card("h1000")


def test_arguments_are_read_as_a_person_writes_them() -> None:
    assert script.parse_arguments(["batch=8,16", "lr=3e-4", "tied=true", "name=adam", "rank=none"]) == {
        "batch": [8, 16],
        "lr": [3e-4],
        "tied": [True],
        "name": ["adam"],
        "rank": [None],
    }
    assert script.combinations({"a": [1, 2], "b": [3]}) == [{"a": 1, "b": 3}, {"a": 2, "b": 3}]
    for wrong in ("batch", "batch=", "1=2"):
        with pytest.raises(TracekitError):
            script.parse_arguments([wrong])


def test_a_branch_on_positions_is_the_right_one_and_a_branch_on_data_is_refused(trace: Traced) -> None:
    known = "assert (torch.arange(4, device=device).diff() == 1).all() and int(torch.ones(3).to(device).sum()) == 3"
    assert trace(LINEAR.format(more=known)).tape.assumed == {}
    with pytest.raises(TracekitError, match=r"reads a bool from the device at .*train\.py:\d+"):
        trace(LINEAR.format(more="if (torch.randint(3, (4,), device=device) > 1).any(): pass"))
    with pytest.raises(TracekitError, match=r"calls aten::index at .*train\.py:\d+, which cannot be run without data"):
        trace(LINEAR.format(more="x = torch.randn(9, device=device); x[x > 0].sum()"))


def test_a_loss_that_is_read_is_made_up_and_said(trace: Traced) -> None:
    (said,) = trace(LINEAR.format(more="loss.item()")).tape.assumed
    assert said.startswith("a number read from the device at ")
    assert "train.py:" in said


def test_what_cannot_be_followed_is_named(trace: Traced) -> None:
    compiled = trace(
        LINEAR.format(more="").replace("nn.Linear(8, 8).to(device)", "torch.compile(nn.Linear(8, 8).to(device))")
    )
    assert [said for said in compiled.tape.assumed if "torch.compile was left out" in said]
    middle = trace(LINEAR.format(more="torch.randn(9, device=device).median()"))
    assert dict(middle.tape.unknown) == {"aten.median.default": 2}


def test_a_script_may_say_cuda_and_empty_the_cache(trace: Traced) -> None:
    same = trace(LINEAR.format(more=""))
    text = LINEAR.format(more="big = torch.empty(9 << 20, device=device); del big; torch.cuda.empty_cache()")
    said = trace(text.replace(".to(device)", ".cuda()").replace("device=device", "device='cuda'"))
    assert said.outcome.final_allocated == same.outcome.final_allocated
    assert "segment_free" in said.outcome.events.action


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("def build(device): return 3", "build returned int, and no function"),
        ("def build(device): raise KeyError('x')", r"KeyError at .*train\.py:3"),
        ("def build(device): return 1, 2, lambda: exit(3)", "ended the program"),
        ("def build(): return 3", "cannot be called with these arguments"),
        ("build = 3", "has no function build"),
        ("import nowhere_at_all", "failed when it was imported: ModuleNotFoundError"),
    ],
)
def test_a_script_that_is_not_one_is_refused_in_a_sentence(trace: Traced, body: str, problem: str) -> None:
    with pytest.raises(TracekitError, match=problem):
        trace(body)


def test_the_command_leaves_a_dataset_and_json(tmp_path: Path) -> None:
    need_torch()
    path = tmp_path / "train.py"
    path.write_text("import torch\nfrom torch import nn\n" + textwrap.dedent(LINEAR.format(more="print('talk')")))
    folder = tmp_path / "e.tracekit"
    made = run("estimate", f"{path}:build", "--steps", "2", "-o", folder, "--format", "json")
    told = json.loads(made.stdout)
    assert told["fits"] is True
    assert told["peak_allocated_bytes"] == told["peak"]["allocated_bytes"]
    assert any("multiprocessors" in line for line in told["assumptions"])
    assert "talk" in made.stderr
    assert run("check", folder).returncode == 0
    assert run("estimate", f"{path}:build", "-o", folder).returncode == 1  # nothing is overwritten
    refused = run("estimate", f"{tmp_path / 'none.py'}:build")
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"tracekit: {tmp_path / 'none.py'}: there is no such file\n")


def test_the_ordinary_options_are_handed_to_a_build_that_takes_them(tmp_path: Path) -> None:
    need_torch()
    path = tmp_path / "train.py"
    path.write_text(
        textwrap.dedent(
            """
            import torch
            def build(device, batch=1, precision="fp32", checkpoint=False, width=1):
                dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
                kept = []
                def step():
                    kept.append(torch.empty(batch * width * (1 if checkpoint else 2), dtype=dtype, device=device))
                return None, None, step
            """
        )
    )
    options = ["--steps", "1", "--format", "json", "--precision", "bf16", "--batch", "512,1024", "--checkpoint"]
    told = json.loads(run("estimate", f"{path}:build", *options, "--with", "width=512").stdout)
    assert told["variable"] == "batch"
    assert [(one["batch"], one["precision"], one["checkpoint"]) for one in told["points"]] == [
        (512, "bf16", True),
        (1024, "bf16", True),
    ]
    assert [one["peak_allocated_bytes"] for one in told["points"]] == [512 * 512 * 2, 1024 * 512 * 2]
    refused = run("estimate", f"{path}:build", "--sequence", "8")
    assert refused.returncode == 1
    assert refused.stderr == ("tracekit: build takes no sequence\nit takes batch, precision, checkpoint, width\n")
    twice = run("estimate", f"{path}:build", "--batch", "8", "--with", "batch=8")
    assert twice.returncode == 1
    assert "batch is given twice" in twice.stderr


def test_the_story_refuses_what_its_command_line_would() -> None:
    need_torch()
    story = f"{ROOT / 'capture' / 'train_step.py'}:build"
    refused = run("estimate", story, "--precision", "fp17")
    assert refused.returncode == 1
    assert "argument --precision: invalid choice: 'fp17'" in refused.stderr


def test_flash_attention_on_an_ampere_card_is_said_to_rest_on_its_source() -> None:
    estimate = traced("llama", conditions("a100", steps=2), batch=1)
    assert list(estimate.tape.approximate) == ["aten._scaled_dot_product_flash_attention_backward.default"]
    assert not estimate.tape.unknown
    assert "no recording" in estimate_traced.margin(estimate)
    assert traced("llama", conditions(steps=2), batch=1).tape.approximate == {}  # a Hopper takes cuDNN's


def test_numbers_of_the_program_keep_their_values_on_the_device(trace: Traced) -> None:
    body = """
    def build(device):
        model = nn.Linear(8, 8).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        kept = torch.tensor([0, 2], device=device)
        def step():
            batch = torch.stack([torch.randn(8) for _ in range(4)]).pin_memory().to(device, non_blocking=True)
            assert int(kept[1]) == 2
            model(batch)[kept].sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return model, optimizer, step
    """
    assert trace(body).tape.assumed == {}


def test_torch_has_one_door() -> None:
    """Analysis, charts and the estimate by formula never import torch; the tracer does so in one file."""
    folder = Path(answer.__file__).parent
    imports = re.compile(r"""^\s*(import|from) torch|["']torch["']""", re.MULTILINE)
    named = [path.name for path in folder.glob("*.py") if imports.search(path.read_text())]
    assert sorted(named) == ["answer.py", "door.py"]  # answer says what to do where it is missing


def test_whether_numbers_are_finite_is_answered_and_said(trace: Traced) -> None:
    more = "assert torch.isfinite(loss) and not loss.isnan().any() and not torch.isinf(loss)"
    assert list(trace(LINEAR.format(more=more)).tape.assumed) == [
        "numbers were taken to be finite where the program asks"
    ]


def test_a_script_may_ask_for_a_gpu_and_tell_its_loss(trace: Traced) -> None:
    more = """
            assert torch.cuda.is_available() and torch.cuda.get_device_properties(0).total_memory > 1 << 37
            torch.cuda.reset_peak_memory_stats()
            print(f"{loss:.3f}", loss.detach().cpu().tolist(), torch.cuda.get_device_name())
    """.strip()
    plain, asked = trace(LINEAR.format(more="")), trace(LINEAR.format(more=more))
    assert asked.tape.requested == plain.tape.requested
    assert len(asked.tape.assumed) == 2
    with pytest.raises(TracekitError, match=r"uses torch\.cuda\.Stream"):
        trace(LINEAR.format(more="torch.cuda.Stream()"))
    counted = trace(LINEAR.format(more="assert torch.cuda.max_memory_allocated() == 0"))
    assert [said for said in counted.tape.assumed if "max_memory_allocated() was answered with 0" in said]


def test_what_stays_on_the_host_is_not_passed_over(trace: Traced) -> None:
    forgotten = trace(LINEAR.format(more="").replace("nn.Linear(8, 8).to(device)", "nn.Linear(8, 8)"))
    assert any("was given tensors of the host at" in said for said in forgotten.tape.assumed)
    with pytest.raises(TracekitError, match="nothing was asked for on the device"):
        trace("def build(device): return None, None, lambda: torch.randn(8)")


def test_small_weights_move_to_a_gpu_as_large_ones_do(trace: Traced) -> None:
    """They stay the same objects, tied ones tied, whoever holds them: an optimizer made before the move too."""
    body = """
    def build(device):
        model = nn.Sequential(nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False))
        model[1].weight = model[0].weight
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        model.to(device)
        def step():
            model(torch.randn(4, 64, device=device)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return model, optimizer, step
    """
    estimate = trace(body)
    size = 64 * 64 * 4
    assert estimate.outcome.final_allocated == 2 * size + 2 * 32 * MIB  # the weight, its momentum, two workspaces
    assert estimate.tape.assumed == {}


@pytest.mark.parametrize("place", ["(torch.randn(4, 32, device=device))", ".cpu()(torch.randn(4, 32))"])
def test_a_lazy_model_gets_its_weights_where_it_is(trace: Traced, place: str) -> None:
    body = f"""
    def build(device):
        model = nn.Sequential(nn.LazyLinear(128, bias=False), nn.LazyLinear(16, bias=False)).to(device)
        model{place}
        model.to(device)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        def step():
            model(torch.randn(4, 32, device=device)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return model, optimizer, step
    """
    estimate = trace(body)
    assert estimate.outcome.final_allocated == (32 * 128 + 128 * 16) * 4 + 2 * 32 * MIB
    assert estimate.tape.assumed == {}


@pytest.mark.parametrize("name", ["SGD", "Adagrad", "Adam"])
def test_fused_optimizers_write_in_place(trace: Traced, name: str) -> None:
    body = LINEAR.format(more="").replace("SGD(model.parameters(), 0.1)", f"{name}(model.parameters(), fused=True)")
    estimate = trace(body)
    assert estimate.tape.unknown == {}


def test_a_recurrent_layer_is_one_call_with_its_weights_in_one_buffer(trace: Traced) -> None:
    """What cuDNN keeps and works in was read off a recording: (6 L - 1) T u + 256 and 5 L (T + 2) u + 512 bytes."""
    batch, length, width, layers = 4, 10, 32, 2
    body = f"""
    def build(device):
        model = nn.LSTM({width}, {width}, {layers}, batch_first=True).to(device)
        def step():
            model(torch.randn({batch}, {length}, {width}, device=device))[0].sum().backward()
        return model, None, step
    """
    estimate = trace(body)
    unit = batch * width * 4
    requested = estimate.tape.requested
    weights = layers * 4 * (2 * width * width + 2 * width) * 4
    assert requested.count(weights) == 1 + 2  # the model's, and a gradient in each step
    assert (6 * layers - 1) * length * unit + 256 in requested
    assert requested.count(5 * layers * (length + 2) * unit + 512) == 2 * 3  # forward, and twice backward
    assert set(estimate.tape.approximate) == {"aten._cudnn_rnn.default", "aten._cudnn_rnn_backward.default"}
    assert not estimate.tape.unknown


def test_torch_does_not_import_its_compiler(tmp_path: Path) -> None:
    """It takes seconds, and every optimizer's step would."""
    need_torch()
    path = tmp_path / "train.py"
    path.write_text("import torch\nfrom torch import nn\n" + textwrap.dedent(LINEAR.format(more="")))
    program = (
        "import sys\n"
        "from tracekit.estimate.traced import answer, cards\n"
        "from tracekit.allocator.settings import Settings\n"
        "card = cards.card('h100')\n"
        "given = answer.Conditions(card, card.cublas_workspace, Settings(), None, 2)\n"
        f"answer.estimate(answer.load({f'{path}:build'!r}), {{}}, given, lambda _: None)\n"
        "assert not [name for name in sys.modules if name.startswith('torch._dynamo')], 'imported'\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


ATTENTION = """
    def build(device, width=64, kernel=None, dtype="bfloat16", masked=False):
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.nn.functional import scaled_dot_product_attention as attend
        import contextlib
        heads = 8
        model = nn.Linear(32, 3 * heads * width).to(device, getattr(torch, dtype))
        def step():
            x = model(torch.randn(2, 16, 32, device=device, dtype=getattr(torch, dtype)))
            query, key, value = (one.view(2, 16, heads, width).transpose(1, 2) for one in x.chunk(3, -1))
            mask = torch.ones(16, 16, dtype=torch.bool, device=device).tril() if masked else None
            with sdpa_kernel(getattr(SDPBackend, kernel)) if kernel else contextlib.nullcontext():
                attend(query, key, value, attn_mask=mask).sum().backward()
        return model, None, step
"""


# what sdp_utils.cpp and recordings have a Hopper choose, and the kernel's name in the stacks
@pytest.mark.parametrize(
    ("arguments", "kernel_name"),
    [
        ({}, "_scaled_dot_product_cudnn_attention"),
        ({"masked": True}, "_scaled_dot_product_cudnn_attention"),
        ({"kernel": "FLASH_ATTENTION"}, "_scaled_dot_product_flash_attention"),
        ({"width": 12}, "_scaled_dot_product_flash_attention"),
        ({"width": 256}, "_scaled_dot_product_flash_attention"),
        ({"dtype": "float32"}, "_scaled_dot_product_efficient_attention"),
        ({"kernel": "EFFICIENT_ATTENTION"}, "_scaled_dot_product_efficient_attention"),
        ({"kernel": "MATH"}, None),
        ({"dtype": "float32", "width": 6}, None),
    ],
)
def test_attention_takes_the_kernel_that_a_gpu_would(
    tmp_path: Path, arguments: dict[str, script.Value], kernel_name: str | None
) -> None:
    need_torch()
    path = tmp_path / "train.py"
    path.write_text("import torch\nfrom torch import nn\n" + textwrap.dedent(ATTENTION))
    tape = answer.estimate(answer.load(f"{path}:build"), arguments, conditions(), lambda _: None).tape
    called = {name for name, _, _ in tape.frames if "_scaled_dot_product" in name and "backward" not in name}
    assert called == (set() if kernel_name is None else {f"at::_ops::{kernel_name}::call(...)"})


def test_sequences_of_several_lengths_are_named(trace: Traced) -> None:
    body = """
    def build(device):
        model = nn.LSTM(16, 32, batch_first=True).to(device)
        def step():
            lengths = torch.tensor([10, 8, 5])
            packed = nn.utils.rnn.pack_padded_sequence(torch.randn(3, 10, 16, device=device), lengths, batch_first=True)
            model(packed)[0].data.sum().backward()
        return model, None, step
    """
    assert "aten.lstm.data by cuDNN" in trace(body).tape.unknown


def test_what_is_saved_on_the_host_costs_the_gpu_nothing(trace: Traced) -> None:
    """save_on_cpu keeps activations in pinned memory: the peak has those of one layer, not of four."""
    body = """
    def build(device):
        model = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(512, 512, bias=False), nn.Tanh())])
        model.to(device)
        def step():
            with {around}:
                loss = model(torch.randn(16_384, 512, device=device)).sum()
            loss.backward()
        return model, None, step
    """
    kept = trace(body.format(around="torch.enable_grad()")).outcome.peak_allocated.value
    moved = trace(body.format(around="torch.autograd.graph.save_on_cpu(pin_memory=True)")).outcome.peak_allocated.value
    activation = 16_384 * 512 * 4
    assert kept - moved >= 2 * activation


def test_a_tensor_of_the_host_is_filled_with_what_is_known(trace: Traced) -> None:
    known = (
        "x = torch.zeros(3, dtype=torch.long); x.copy_(torch.arange(3, device=device)); assert x.tolist() == [0, 1, 2]"
    )
    assert trace(LINEAR.format(more=known)).tape.assumed == {}
    (said,) = trace(LINEAR.format(more="torch.zeros(3).copy_(torch.rand(3, device=device))")).tape.assumed
    assert "were left as they were" in said


def test_arguments_of_distributions_are_not_looked_at(trace: Traced) -> None:
    more = "torch.distributions.Categorical(logits=model(torch.randn(4, 8, device=device))).sample()"
    assert trace(LINEAR.format(more=more)).tape.assumed == {}
