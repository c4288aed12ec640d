# SPDX-License-Identifier: BSD-3-Clause
"""The life of a Model: close, threads, fork, callbacks, Ctrl-C, and that nothing is left behind. What may end a process runs in one of its own."""

from __future__ import annotations

import gc
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
import weakref
from pathlib import Path
from typing import Any, Callable

import pytest

from test_cli import LONG, write_chat_model, write_model, write_speaker, write_tokenizer

legacyml = pytest.importorskip("legacyml", reason="the binding is not compiled: make venv")
pytest.importorskip("numpy")


@pytest.fixture(scope="module")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Says "abc" and stops."""
    return write_speaker(tmp_path_factory.mktemp("speaker") / "speaker.mlb", [b"a", b"b", b"c"])


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Says "ab" for ever, with many positions."""
    path = write_model(tmp_path_factory.mktemp("endless") / "endless.mlb", [3, 3, 3, 4, 3], LONG, layers=1)
    write_tokenizer(path, [b"a", b"b"])
    return path


@pytest.fixture(scope="module")
def random_pair(random_model: Callable[..., Path]) -> Path:
    """A model in which every bit counts, with a tokenizer."""
    return random_model(dim=128, hidden=256, layers=3, heads=4, kv_heads=2, vocab=600, max_seq=256, tokenizer="plain")


def child(code: str, *arguments: object, timeout: float = 300) -> list[str]:
    """Runs code in a Python of its own, which must end well and say nothing on standard error; the lines that it prints."""
    command = [
        sys.executable,
        "-X",
        "faulthandler",
        "-W",
        "error",
        "-c",
        "import gc, os, sys, threading, time\nfrom pathlib import Path\nimport legacyml\n" + code,
    ]
    run = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=timeout)
    assert (run.returncode, run.stderr) == (0, ""), (run.returncode, run.stdout, run.stderr)
    return run.stdout.splitlines()


# -- Close ----------------------------------------------------------------------------------------------------------------------


def test_use_after_close(speaker: Path) -> None:
    """Everything that needs the model says that it is closed; a second close does nothing."""
    with legacyml.Model(speaker) as model:
        stream = model.generate("", stream=True)
        assert next(stream) == "a"
        state = model.save_state()
    uses: list[Callable[[], object]] = [
        lambda: model.generate(""),
        lambda: model.generate([1]),
        lambda: model.generate([{"role": "user", "content": "x"}], template="plain"),
        lambda: next(stream),
        lambda: model.forward([1]),
        lambda: model.forward([1], every=True),
        lambda: model.logits(),
        lambda: model.tokens,
        lambda: model.rewind(0),
        lambda: model.tokenize("a"),
        lambda: model.detokenize([3]),
        lambda: model.perplexity("ab"),
        lambda: model.perplexity([1, 2]),
        lambda: model.save_state(),
        lambda: model.load_state(state),
        lambda: model.bos,
        lambda: model.chat_template,
        lambda: model.__enter__(),
    ]
    for use in uses:
        with pytest.raises(legacyml.StateError, match="this Model is closed"):
            use()
    assert list(stream) == []
    model.close()
    model.close()
    assert model.info.vocab == model.n_vocab == 6


def test_an_exception_closes(speaker: Path) -> None:
    with pytest.raises(KeyError), legacyml.Model(speaker) as model:
        raise KeyError
    with pytest.raises(legacyml.StateError):
        model.generate("")


def test_last_reference(speaker: Path) -> None:
    """A stream keeps its Model; with the last reference everything goes at once, without the collector's help."""
    maps = Path("/proc/self/maps")
    gc.disable()
    try:
        stream = legacyml.Model(speaker).generate("", stream=True)
        gone = weakref.ref(stream._model)
        assert list(stream) == ["a", "b", "c"] and gone() is None and str(speaker) not in maps.read_text()
        stream = legacyml.Model(speaker).generate("", stream=True)
        gone = weakref.ref(stream._model)
        assert next(stream) == "a" and str(speaker) in maps.read_text()
        del stream
        assert gone() is None and str(speaker) not in maps.read_text()
        view = legacyml.Model(speaker).forward([1])
        assert view[3] == max(view) and str(speaker) in maps.read_text()
        del view
        assert str(speaker) not in maps.read_text()
        model = legacyml.Model(speaker)
        view = model.forward([1])
        model.close()  # frees although the buffer is still there
        assert str(speaker) not in maps.read_text()
        with pytest.raises(ValueError, match="released"):
            view[0]
    finally:
        gc.enable()


def test_exit_with_an_open_model(speaker: Path) -> None:
    """In a global, in a cycle, in the middle of a stream, with a buffer given out: quiet."""
    child(
        "model = legacyml.Model(sys.argv[1], threads=4)\nview = memoryview(model.forward([1]))\nstream = model.generate('', stream=True)\n"
        "next(stream)\nother = legacyml.Model(sys.argv[1])\nother.itself = other",
        speaker,
    )


def test_failed_load(speaker: Path, tmp_path: Path) -> None:
    (tmp_path / "half.mlb").write_bytes(speaker.read_bytes()[:5000])
    code = """
for _ in range(50):
    try: legacyml.Model(sys.argv[1])
    except legacyml.LegacymlError: pass
    try: legacyml.Model(sys.argv[2], context=1 << 23)
    except legacyml.LegacymlError: pass
    try: legacyml.Model(sys.argv[2], tokenizer=sys.argv[2])
    except legacyml.LegacymlError: pass
    gc.collect()
print(len(os.listdir("/proc/self/fd")), Path("/proc/self/maps").read_text().count(".mlb"))
"""
    assert child(code, tmp_path / "half.mlb", speaker) == ["4 0"]  # standard streams and the folder itself


def test_nothing_grows(speaker: Path) -> None:
    """500 rounds of load, use and close with 4 threads: memory, maps, descriptors and threads as after the first 100."""
    code = """
def measure():
    gc.collect()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    size = [int(status[name].split()[0]) for name in ("VmRSS", "VmSize", "Threads")]
    return [*size, len(os.listdir("/proc/self/fd")), len(Path("/proc/self/maps").read_text().splitlines())]
def rounds(n):
    for i in range(n):
        model = legacyml.Model(sys.argv[1], threads=4, mmap=i % 2 == 0)
        assert model.n_threads in (1, 4)
        assert model.generate("", logprobs=2).text == "abc"
        model.forward([1]); model.save_state(); model.perplexity("ab")
        next(model.generate("", stream=True))
        if i % 3: model.close()
rounds(100)
before = measure()
rounds(500)
after = measure()
assert after[0] - before[0] < 1024 and after[1] - before[1] < 4096, (before, after)  # kB
assert after[2:4] == before[2:4] and abs(after[4] - before[4]) <= 4, (before, after)
"""
    child(code, speaker)


# -- Threads --------------------------------------------------------------------------------------------------------------------


def together(*works: Callable[[], Any]) -> list[Any]:
    """Runs works in threads that start at the same time; what they give, or the exception that one raised."""
    results: list[Any] = [None] * len(works)
    barrier = threading.Barrier(len(works))

    def run(i: int) -> None:
        barrier.wait()
        try:
            results[i] = works[i]()
        except BaseException as error:  # noqa: BLE001
            results[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def test_two_threads_on_one_model(random_pair: Path) -> None:
    """Each waits for the other and gets what it gets alone, whether at once or as a stream, while a third reads ids and tokenizes."""
    arguments = [{"temperature": 1.2, "seed": seed, "max_tokens": 60} for seed in (1, 2)]
    with legacyml.Model(random_pair) as model:
        alone = [model.generate("abc", **a).text for a in arguments]
        assert alone[0] != alone[1]

        def look() -> bool:
            for _ in range(200):
                assert len(model.tokens) <= 256 and model.tokenize("abc") and model.n_ctx == 256
            return True

        works = [lambda a=a: model.generate("abc", **a).text for a in arguments]
        assert together(*works, look) == [*alone, True]
        works = [lambda a=a: "".join(model.generate("abc", stream=True, **a)) for a in arguments]
        assert together(*works, look) == [*alone, True]


def test_streams_in_turn(random_pair: Path) -> None:
    """Two streams and other calls on one Model in one thread: whatever is done in between, each goes on with its own text."""
    with legacyml.Model(random_pair) as model:
        arguments = {"temperature": 1.0, "seed": 4, "max_tokens": 25}
        alone = [model.generate(p, **arguments).text for p in ("abc", "abd")]
        streams = [model.generate(p, stream=True, **arguments) for p in ("abc", "abd")]
        said = ["", ""]
        while any(s.stop_reason is None for s in streams):
            for i, stream in enumerate(streams):
                said[i] += next(stream, "")
            model.rewind(len(model.tokens) // 2)
        assert said == alone


def test_two_models_side_by_side(random_pair: Path) -> None:
    """The same bits as one after the other."""

    def work(threads: int) -> bytes:
        with legacyml.Model(random_pair, threads=threads) as model:
            return b"".join(bytes(model.forward([i % 600])) for i in range(100)) + model.save_state()

    alone = work(1)
    assert together(lambda: work(1), lambda: work(2), lambda: work(3)) == [alone] * 3


def test_second_thread_waits(speaker: Path) -> None:
    """While a call runs, another one, close() too, waits until it has returned."""
    order: list[str] = []
    inside, go = threading.Event(), threading.Event()

    def hold(text: str) -> None:
        inside.set()
        go.wait(60)

    def first() -> None:
        order.append(model.generate("", callback=hold).text)

    def second() -> None:
        inside.wait(60)
        threading.Timer(0.2, go.set).start()
        order.append(str(len(model.forward([1]))))
        model.close()
        order.append("closed")

    model = legacyml.Model(speaker)
    together(first, second)
    assert order == ["abc", "6", "closed"]


def test_lock_is_released(endless: Path) -> None:
    """A single call into the library lets other Python threads run all the time, not only every five milliseconds."""
    from legacyml._native import ffi, lib

    count, done = 0, threading.Event()

    def counting() -> None:
        nonlocal count
        while not done.is_set():
            count += 1

    with legacyml.Model(endless, context=100_000, threads=1) as model:
        ids = ffi.new("int32_t[]", [3] * 60_000)
        thread = threading.Thread(target=counting)
        thread.start()
        try:
            before, start = count, time.monotonic()
            assert lib.ml_context_eval(model._context, ids, 60_000, ffi.NULL) == 0
            counted, seconds = count - before, time.monotonic() - start
        finally:
            done.set()
            thread.join()
    assert seconds > 0.05, "the call was too short to tell"
    assert counted > 2000


# -- Fork -----------------------------------------------------------------------------------------------------------------------


def test_fork(random_pair: Path) -> None:
    """In the child the Model of before is refused at once and closed quietly, a new one works, and the parent's goes on."""
    code = """
model = legacyml.Model(sys.argv[1], threads=3)
expected = model.generate("abc", max_tokens=20).text
stream = model.generate("abc", max_tokens=20, stream=True)
begun = next(stream)
view = model.logits()
child = os.fork()
if child == 0:
    uses = [lambda: model.generate("abc"), lambda: model.forward([1]), lambda: model.tokens, lambda: next(stream), lambda: model.rewind(0),
            lambda: model.tokenize("abc"), lambda: model.save_state()]
    for use in uses:
        try: use()
        except legacyml.StateError as error: assert f"made in process {os.getppid()}" in str(error), error
        else: os._exit(3)
    assert max(view) == max(view.tolist())
    model.close(); model.close()
    with legacyml.Model(sys.argv[1], threads=2) as own:
        assert own.generate("abc", max_tokens=20).text == expected
    print("child", flush=True)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert begun + "".join(stream) == expected == model.generate("abc", max_tokens=20).text
print("parent")
"""
    assert child(code, random_pair, timeout=120) == ["child", "parent"]


def test_fork_while_a_call_runs(endless: Path) -> None:
    """The lock is held by a thread that the child does not have; the child does not wait for it, and ends."""
    code = """
model = legacyml.Model(sys.argv[1], context=5000, threads=2)
inside, go = threading.Event(), threading.Event()
def hold(text):
    inside.set()
    go.wait(60)
    return False
thread = threading.Thread(target=lambda: model.generate("", callback=hold))
thread.start()
inside.wait(60)
import warnings
warnings.simplefilter("ignore")  # of Python 3.12 about forking with threads: that is what is tried
child = os.fork()
if child == 0:
    for use in (lambda: model.generate(""), lambda: model.forward([1]), lambda: model.tokens, lambda: model.save_state()):
        try: use()
        except legacyml.StateError: pass
        else: os._exit(3)
    model.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
go.set()
thread.join()
print(model.generate("", max_tokens=3).text)
"""
    assert child(code, endless, timeout=120) == ["aba"]


def test_fork_by_multiprocessing(random_pair: Path) -> None:
    code = """
import multiprocessing, warnings
warnings.simplefilter("ignore")
model = legacyml.Model(sys.argv[1])
def work(seed):
    with legacyml.Model(sys.argv[1], threads=1) as own:
        return own.generate("abc", temperature=1.0, seed=seed, max_tokens=10).text
with multiprocessing.get_context("fork").Pool(2) as pool:
    texts = pool.map(work, range(4))
print(texts == [work(seed) for seed in range(4)])
"""
    assert child(code, random_pair, timeout=120) == ["True"]


# -- Callbacks ------------------------------------------------------------------------------------------------------------------


class Mine(Exception):
    pass


def test_callback_raises(speaker: Path) -> None:
    """The exception itself, with the traceback into the callback, after that token; the Model goes on."""
    seen: list[str] = []

    def complain(text: str) -> None:
        seen.append(text)
        if text == "b":
            raise Mine("the reason")

    with legacyml.Model(speaker) as model:
        with pytest.raises(Mine, match="the reason") as caught:
            model.generate("", callback=complain)
        assert seen == ["a", "b"] and traceback.extract_tb(caught.tb)[-1].name == "complain"
        stream = model.generate("", callback=complain, stream=True)
        assert next(stream) == "a"
        with pytest.raises(Mine):
            next(stream)
        assert list(stream) == [] and stream.stop_reason is None
        assert model.generate("").text == "abc"


@pytest.mark.parametrize(
    ("value", "text"), [(False, "a"), (None, "abc"), ("", "abc"), (0, "abc"), (True, "abc"), ("stop", "abc"), ([], "abc")]
)
def test_callback_returns(speaker: Path, value: object, text: str) -> None:
    """False ends the text there, and nothing else does."""
    with legacyml.Model(speaker) as model:
        done = model.generate("", callback=lambda _: value)
        assert (done.text, done.stop_reason) == (text, "callback" if value is False else "stop_token")
        stream = model.generate("", callback=lambda _: value, stream=True)
        assert "".join(stream) == text and stream.stop_reason == done.stop_reason


def test_callback_is_called_for_each_token(tmp_path: Path) -> None:
    """Also where no text becomes final; what was held back comes at the end."""
    write_speaker(tmp_path / "m.mlb", [b"x", b"\xc3", b"\xa9", b"st"])
    seen: list[str] = []
    with legacyml.Model(tmp_path / "m.mlb") as model:
        assert model.generate("", stop="stop", callback=seen.append).text == "xést" and seen == ["x", "", "é", "", "st"]
        seen.clear()
        done = model.generate("", callback=lambda text: seen.append(text) or (False if text == "" else None))
        assert (done.text, done.raw, done.stop_reason, seen) == ("x\ufffd", b"x\xc3", "callback", ["x", ""])


def test_callback_asks_its_own_model(tmp_path: Path) -> None:
    """What would wait for itself is refused; what needs no waiting works; the refusal reaches the caller if the callback lets it."""
    path = write_chat_model(tmp_path / "m.mlb", {10: 65, 65: 66})
    with legacyml.Model(path) as model, legacyml.Model(path) as other:
        said = []

        def ask(text: str) -> None:
            for use in (
                lambda: model.generate([1]),
                lambda: model.forward([1]),
                model.close,
                lambda: model.rewind(0),
                lambda: model.tokens,
            ):
                with pytest.raises(legacyml.StateError, match="own callback"):
                    use()
            said.append((model.tokenize("a"), model.n_ctx, other.generate(b"\n").text))

        assert model.generate(b"\n", callback=ask).text == "AB" and said[0] == ([97], 256, "AB") and len(said) == 2
        with pytest.raises(legacyml.StateError):
            model.generate(b"\n", callback=lambda _: model.close())
        assert model.generate(b"\n").text == "AB"


# -- Ctrl-C ---------------------------------------------------------------------------------------------------------------------


def test_stretches(endless: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long prompt goes to the library in stretches of some hundredths of a second, many tokens each, so that Ctrl-C can act between them."""
    calls: list[tuple[int, float]] = []
    call = legacyml.library.call

    def timed(function: Any, *arguments: Any) -> None:
        start = time.monotonic()
        call(function, *arguments)
        if len(arguments) == 3 and isinstance(arguments[2], int):
            calls.append((arguments[2], time.monotonic() - start))

    monkeypatch.setattr(legacyml.library, "call", timed)
    with legacyml.Model(endless, context=6000) as model:
        model.forward([3] * 6000)
    assert sum(n for n, _ in calls) == 6000 and len(calls) < 1500
    whole = sum(seconds for _, seconds in calls)
    assert max(seconds for _, seconds in calls) < max(0.25, whole / 8), whole


WORK = {
    "prompt": "model.generate([3] * 150000)",
    "generate": "model.generate('')",
    "stream": "[0 for _ in model.generate('', stream=True)]",
    "callback": "model.generate('', callback=lambda text: None)",
    "forward": "model.forward([3] * 150000)",
    "every": "model.forward([3] * 150000, every=True)",
    "perplexity": "model.perplexity([3] * 150000)",
    "waiting": "threading.Thread(target=lambda: model.generate('', max_tokens=4000)).start(); time.sleep(0.3); model.generate('')",
}


@pytest.mark.parametrize("work", WORK)
def test_interrupt(endless: Path, work: str) -> None:
    """KeyboardInterrupt comes within about one token, and the Model works afterwards."""
    code = f"""import os, signal, sys, threading, time
import legacyml
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background job has not
model = legacyml.Model(sys.argv[1], context={LONG})
print("ready", flush=True)
try:
    {WORK[work]}
    print("not interrupted", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
if {work == "forward"}: assert model.tokens == []
print(model.generate("", max_tokens=3).text, flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code, str(endless)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    try:
        assert process.stdout.readline() == "ready\n"
        time.sleep(1.0)
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert select.select([process.stdout], [], [], 30)[0] and process.stdout.readline() == "interrupted\n"
        assert time.monotonic() - start < 2.0
        # Not communicate(), which does not see what readline() has read ahead.
        assert (process.stdout.read(), process.stderr.read(), process.wait(120)) == ("aba\n", "", 0)
    finally:
        process.kill()
        process.wait()
