"""What somebody could do to a store: mutations of its tensor files, its manifest and its results, as strategies."""

import copy
import hashlib
import json

import hypothesis.strategies as st

import collapse.stores.files
from collapse.stores.manifest import MANIFEST, render, sealed

SECRET = "outside.safetensors"
"""A file beside the store, which must never be opened."""

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-2, 10),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        ["top/x.safetensors", "../" + SECRET, "/etc/passwd", "F64", "I64", "BF16", "\x1b[31m", "=1+1", "a" * 5000]
    ),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
PLACES = st.lists(st.integers(0, 2**16), min_size=1, max_size=6)
FLIPS = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=8)
FILE = st.integers(0, 3)
PATHS = [
    "../" + SECRET,
    "top/../../" + SECRET,
    "{outside}",
    "top/..\\" + SECRET,
    "../../x",
    "..",
    ".hidden/x.safetensors",
]
WORDS = st.lists(st.tuples(st.integers(0, 2**16), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=4)
KINDS = {
    # tensor files under a manifest that knows of the change: most of these reach the tensor reader
    "numbers": (12, st.tuples(FILE, FLIPS)),
    "words": (12, st.tuples(FILE, WORDS)),
    "header": (4, st.tuples(FILE, st.tuples(PLACES, VALUES))),
    "length": (1, st.tuples(FILE, st.integers(0, 2**64 - 1) | st.integers(0, 3000))),
    "cut": (1, st.tuples(FILE, st.floats(0, 1))),
    # a manifest that is sealed again, or not
    "manifest": (4, st.tuples(st.booleans(), st.tuples(PLACES, VALUES))),
    "path": (1, st.tuples(FILE, st.sampled_from(PATHS))),
    # damage that nobody sealed
    "unsealed": (2, st.tuples(FILE, FLIPS)),
    "bytes": (1, st.tuples(FILE, FLIPS)),
    # what was measured
    "results": (2, st.tuples(st.booleans(), st.tuples(PLACES, VALUES))),
    "table": (1, st.tuples(FILE, FLIPS)),
}
"""Kind of mutation → how often, and which file or whether sealed again, and how."""

MUTATIONS = st.sampled_from([kind for kind, (often, _) in KINDS.items() for _ in range(often)]).flatmap(
    lambda kind: st.tuples(st.just(kind), KINDS[kind][1])
)


def flip(data, flips, start=0):
    """Bytes with some of them changed, from a place on."""
    changed = bytearray(data)
    for where, mask in flips:
        changed[start + int(where * (len(changed) - start))] ^= mask
    return bytes(changed)


def put(tree, places, value):
    """Replace, add or delete one value somewhere in a JSON tree."""
    node = tree
    for step, place in enumerate(places):
        if not isinstance(node, (dict, list)) or not node:
            return
        keys = sorted(node) if isinstance(node, dict) else list(range(len(node)))
        key = keys[place % len(keys)]
        if step == len(places) - 1 or not isinstance(node[key], (dict, list)):
            if place % 7 == 6:
                del node[key]
            elif place % 7 == 5 and isinstance(node, dict):
                node[str(value)[:50]] = node.pop(key)
            else:
                node[key] = value
            return
        node = node[key]


def seal(store, manifest):
    """Write a manifest as somebody would who wants it to be taken."""
    content = {key: value for key, value in manifest.items() if key not in ("digest", "provenance", "checksum")}
    try:
        data = render(sealed(content, manifest.get("provenance", {})))
    except (ValueError, TypeError, UnicodeError):  # NaN, say
        data = json.dumps(manifest, indent=1, sort_keys=True).encode()
    (store / MANIFEST).write_bytes(data)


def entry_of(data, before):
    """What a manifest would say of a tensor file; its header as it can be read, or as it was."""
    try:
        length = int.from_bytes(data[:8], "little")
        tensors = collapse.stores.tensor_files._parse_header(data[8 : 8 + length])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        tensors = before["tensors"]
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "tensors": tensors}


def mutate(store, mutation):
    """Apply a mutation; whether a store that opens as complete would then be a wrong one."""
    kind, (which, how) = mutation
    manifest = json.loads((store / MANIFEST).read_bytes())
    names = sorted(manifest["files"])
    name = names[which % len(names)]
    file = store / name
    data = file.read_bytes()
    header = 8 + int.from_bytes(data[:8], "little")
    if kind == "numbers":
        file.write_bytes(flip(data, how, header))
    elif kind == "words":
        changed = bytearray(data)
        for place, value in how:
            at = header + 8 * (place % max((len(data) - header) // 8, 1))
            changed[at : at + 8] = value.to_bytes(8, "little", signed=True)
        file.write_bytes(changed[: len(data)])
    elif kind == "header":
        tree = json.loads(data[8:header])
        put(tree, *how)
        text = json.dumps(tree).encode()
        file.write_bytes(len(text).to_bytes(8, "little") + text + data[header:])
    elif kind == "length":
        file.write_bytes(how.to_bytes(8, "little") + data[8:])
    elif kind == "cut":
        file.write_bytes(data[: int(len(data) * how)])
    elif kind == "unsealed":
        file.write_bytes(flip(data, how))
        return file.read_bytes() != data
    elif kind == "manifest":
        before = copy.deepcopy(manifest)
        put(manifest, *how)
        if which:
            seal(store, manifest)
        else:
            (store / MANIFEST).write_bytes(json.dumps(manifest, indent=1, sort_keys=True).encode() + b"\n")
            return json.dumps(manifest) != json.dumps(before)
    elif kind == "path":
        outside = store.parent / SECRET
        manifest["files"][how.format(outside=outside)] = entry_of(outside.read_bytes(), {})
        seal(store, manifest)
    elif kind == "bytes":
        before = (store / MANIFEST).read_bytes()
        (store / MANIFEST).write_bytes(flip(before, how))
        return (store / MANIFEST).read_bytes() != before
    elif kind == "results":
        kept = json.loads((store / "results.json").read_bytes())
        put(kept["row"] if which else kept, *how)
        if which:
            kept["sha256"] = collapse.stores.files.sha256_of(kept["row"]) if _finite(kept["row"]) else kept["sha256"]
        (store / "results.json").write_text(json.dumps(kept))
        (store / "table.json").write_text(json.dumps([kept.get("row")]))
    elif kind == "table":
        (store / "table.json").write_bytes(flip((store / "table.json").read_bytes(), how))
    if kind in ("numbers", "words", "header", "length", "cut"):
        manifest["files"][name] = entry_of(file.read_bytes(), manifest["files"][name])
        seal(store, manifest)
    return False


def _finite(value):
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True
