"""float32 numbers are multiplied in full while numbers are made, and as the program chose afterwards."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import collapse
from collapse.core.precision import Precision, exact_arithmetic, newer_settings
from collapse.errors import CollapseError

CHOSEN = {
    "nothing": lambda: None,
    "medium": lambda: torch.set_float32_matmul_precision("medium"),
    "high": lambda: torch.set_float32_matmul_precision("high"),
    "products": lambda: setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32"),
    "older products": lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True),
    "convolutions": lambda: setattr(torch.backends.cudnn.conv, "fp32_precision", "ieee"),
    "older convolutions": lambda: setattr(torch.backends.cudnn, "allow_tf32", False),
    "everything": lambda: setattr(torch.backends, "fp32_precision", "tf32"),
    "on a GPU": lambda: setattr(torch.backends.cudnn, "fp32_precision", "ieee"),
    "on a CPU": lambda: setattr(torch.backends.mkldnn, "fp32_precision", "bf16"),
}


def older_settings():
    found = []
    for read in (torch.get_float32_matmul_precision, lambda: torch.backends.cudnn.allow_tf32):
        try:
            found.append(read())
        except RuntimeError:
            found.append("unreadable")
    return found


@pytest.fixture
def restored():
    """Restore what a test chooses."""
    before, seen = Precision.now(), (newer_settings(), older_settings())
    yield
    before.restore()
    assert (newer_settings(), older_settings()) == seen


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("name", CHOSEN)
def test_what_a_program_chose_holds_again_afterwards(name):
    CHOSEN[name]()
    before = newer_settings(), older_settings()
    with exact_arithmetic():
        assert set(newer_settings()) == {"ieee"}
        for now, was, full in zip(older_settings(), before[1], ("highest", False), strict=True):
            assert was == "unreadable" or now == full
    assert (newer_settings(), older_settings()) == before


@pytest.mark.usefixtures("restored")
def test_what_is_within_in_another_thread_stays_exact():
    torch.set_float32_matmul_precision("medium")
    before, seen = newer_settings(), []
    with ThreadPoolExecutor(1) as pool, exact_arithmetic():
        inner = exact_arithmetic()
        pool.submit(inner.__enter__).result()
        pool.submit(lambda: inner.__exit__(None, None, None)).result()
        seen.append(newer_settings())
    first, second = exact_arithmetic(), exact_arithmetic()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    seen.append(newer_settings())
    second.__exit__(None, None, None)
    assert [set(each) for each in seen] == [{"ieee"}, {"ieee"}]
    assert newer_settings() == before


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("name", ["medium", "products", "everything", "on a CPU"])
@pytest.mark.parametrize("phase", ["train", "validation"])
def test_a_thread_that_chooses_otherwise_meanwhile_ends_the_collection(tiny, tmp_path, name, phase):
    options = tiny.options() | {"max_chunks": 20}
    told = []

    def choose(what, done, total):
        if what == f"collecting {phase}" and done >= total / 2 and not told:
            told.append(done)
            with ThreadPoolExecutor(1) as pool:
                pool.submit(CHOSEN[name]).result()

    with pytest.raises(CollapseError, match=f"while {phase} chunk .* was computed"):
        collapse.collect(tiny.model, store=tmp_path / "s", progress=choose, **options)
    store = collapse.collect(tiny.model, store=tmp_path / "s", **options)
    assert store.digest == collapse.collect(tiny.model, store=tmp_path / "plain", **options).digest


@pytest.mark.usefixtures("restored")
def test_threads_that_measure_and_collect_at_once_share_the_settings(tiny, tmp_path):
    """Whoever began first: what a metric's guest puts back is not what the program chose."""
    torch.set_float32_matmul_precision("medium")
    options = tiny.options() | {"max_chunks": 20}
    plain = collapse.collect(tiny.model, store=tmp_path / "plain", **options)
    with ThreadPoolExecutor(4) as pool:
        measuring = pool.submit(lambda: [collapse.measure(plain) for _ in range(8)])
        collecting = [pool.submit(collapse.collect, tiny.model, store=tmp_path / name, **options) for name in "abc"]
        assert {each.result().digest for each in collecting} == {plain.digest}
        assert len({str(row.measurements) for row in measuring.result()}) == 1
    assert torch.get_float32_matmul_precision() == "medium"


def test_autocast_and_the_default_dtype_are_set_aside():
    torch.set_default_dtype(torch.float64)
    try:
        with torch.autocast("cpu"):
            with exact_arithmetic():
                assert not torch.is_autocast_enabled("cpu")
                assert torch.get_default_dtype() == torch.float32
            assert torch.is_autocast_enabled("cpu")
            assert not torch.is_autocast_enabled("cuda")
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("restored")
def test_it_is_restored_after_an_error():
    before = newer_settings()
    with pytest.raises(KeyError), exact_arithmetic():
        raise KeyError
    assert newer_settings() == before


def test_a_library_follows_everything_again(restored):
    torch.backends.fp32_precision = "tf32"
    with exact_arithmetic():
        pass
    torch.backends.fp32_precision = "ieee"
    assert torch.backends.cuda.matmul.fp32_precision == "ieee"
    torch.backends.fp32_precision = "none"


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("chosen", ["medium", "products", "autocast", "dtype"])
@pytest.mark.parametrize("fast", [True, False])
def test_a_program_that_chose_fast_products_gets_the_same_store(tiny, tmp_path, chosen, fast):
    options = tiny.options() | {"max_chunks": 20, "fast_attention": fast}
    plain = collapse.collect(tiny.model, store=tmp_path / "plain", **options)
    if chosen == "autocast":
        with torch.autocast("cpu"):
            store = collapse.collect(tiny.model, store=tmp_path / "s", **options)
            assert torch.is_autocast_enabled("cpu")
    elif chosen == "dtype":
        torch.set_default_dtype(torch.float64)
        store = collapse.collect(tiny.model, store=tmp_path / "s", **options)
        assert torch.get_default_dtype() == torch.float64
        torch.set_default_dtype(torch.float32)
    else:
        CHOSEN[chosen]()
        store = collapse.collect(tiny.model, store=tmp_path / "s", **options)
    assert store.digest == plain.digest
    assert list(store.manifest["statistics"]) == ["covariance"]
    nulls = {name for name, value in collapse.measure(store).measurements.items() if value is None}
    assert nulls <= {"nc2.interference_debiased"}  # which noise decides in so short a text
