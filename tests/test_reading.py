"""Files of anybody: regular ones only, within a limit, and JSON that harms no parser, block by block as a whole."""

import json
import os
import random
import socket

import pytest

from collapse.reading import JSON_LIMIT, Nesting, is_utf8, open_regular, parse_json, read_bounded, read_json


def nested(depth: int) -> bytes:
    return b'{"a": [' * (depth // 2) + b"[" * (depth % 2) + b"]" * (depth % 2) + b"]}" * (depth // 2)


def refuses(*blocks: bytes) -> bool:
    nesting = Nesting()
    try:
        for block in blocks:
            nesting.add(block)
    except ValueError:
        return True
    return False


def test_names_that_are_utf8():
    assert is_utf8("café")
    assert not is_utf8(os.fsdecode(b"caf\xe9"))


def test_only_regular_files_are_opened(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    with open_regular(str(tmp_path / "a")) as file:
        assert file.read() == b"abc"
        assert not os.get_inheritable(file.fileno())
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "zero").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s")) if len(str(tmp_path)) < 90 else (tmp_path / "s").symlink_to("/dev/null")
        for name in ("fifo", "zero", "s"):
            with pytest.raises(OSError, match=r"not a regular file|No such device"):
                open_regular(tmp_path / name)
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "none")


def test_a_limit_is_exact(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 1000)
    assert read_bounded(tmp_path / "a", 1000) == b"x" * 1000
    assert read_bounded(tmp_path / "a") == b"x" * 1000
    for limit in (999, 998, 0):
        with pytest.raises(ValueError, match=r"it is too large \(1,000 bytes\)"):
            read_bounded(tmp_path / "a", limit)
    (tmp_path / "b").write_bytes(b"[1, 2]")
    assert read_json(tmp_path / "b", 6) == [1, 2]
    assert read_json(tmp_path / "b") == [1, 2]
    with pytest.raises(ValueError, match="too large"):
        read_json(tmp_path / "b", 5)
    assert JSON_LIMIT == 64 * 2**20


def test_a_hundred_levels_and_no_more():
    for depth in (1, 2, 99, 100):
        json.loads(nested(depth))
        parse_json(nested(depth))
        assert not refuses(nested(depth) * 50)  # levels that were left do not count
    for depth in (101, 102, 200):
        with pytest.raises(ValueError, match="nested more than 100 levels deep"):
            parse_json(nested(depth))
    assert not refuses(b"[[]," * 99)
    assert refuses(b"[[]," * 100)
    assert refuses(b"[\xff" * 101)  # no JSON, but a parser might go as deep before it says so
    assert not refuses(b"]" * 1000 + nested(100))
    assert refuses(b"]" * 1000 + nested(101))


def test_brackets_in_texts_do_not_count():
    many = "[" * 200
    for text in (many, f'"{many}', f'{many}"', f"\\{many}", f'\\"{many}\\\\', f"é\xff{many}\x00"):
        assert not refuses(json.dumps({"a": text, "b": [text]}, ensure_ascii=False).encode())
        assert refuses(json.dumps({"a": text}).encode() + many.encode())
    assert refuses(b'"open\n' + many.encode())  # JSON has no line break in a text
    assert not refuses(b'"open ' + many.encode())
    assert refuses(b'"\\\\"' + many.encode())
    assert not refuses(b'"\\"' + many.encode())


def test_blocks_are_read_as_the_whole():
    draw = random.Random(0)
    pieces = [b"[", b"]", b"{", b"}", b'"', b"\\", b"\\\\", b'\\"', b"\n", b"a", b"[" * 97, b"\xff"]
    for _ in range(300):
        whole = b"".join(draw.choices(pieces, weights=[4, 1, 4, 1, 4, 3, 2, 2, 1, 1, 1, 1], k=40))
        cuts = sorted(draw.choices(range(len(whole) + 1), k=6))
        blocks = [whole[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
        assert refuses(*blocks) == refuses(whole), whole


def test_integers_have_at_most_400_digits():
    assert parse_json(b"[" + b"1" * 400 + b"]") == [int("1" * 400)]
    for digits in (401, 5000):
        with pytest.raises(ValueError, match=f"an integer of {digits:,} digits"):
            parse_json(b"1" * digits)
    with pytest.raises(ValueError, match="Expecting"):
        parse_json(b"{")
