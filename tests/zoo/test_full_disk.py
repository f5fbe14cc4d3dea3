"""A full disk while a model is trained: one line says what cannot be written; with space, the same command resumes.

A limit on the size of files stands in for the disk: torch's and safetensors' writers end half-way, too.
"""

import json

from collapse_zoo.runs import Run


def test_no_space_is_told_and_mended(runner, words, tmp_path):
    train = ["zoo", "train", "2x64", *words("--max-steps", 6)]  # state, model, optimizer: files of rising sizes
    code, said = runner.run([*train, "--output", tmp_path / "undisturbed"], tmp_path / "log")
    assert code == 0, said
    model = (tmp_path / "undisturbed" / "model.safetensors").read_bytes()
    sizes = {file.stat().st_size for file in (tmp_path / "undisturbed").iterdir() if file.is_file()}
    assert max(sizes) < 600_000
    for limit in (1_000, 100_000, 600_000):  # the record, the model and the optimizer's state are larger
        output = tmp_path / str(limit) / "run"
        command = [*train, "--output", output]
        code, said = runner.run(command, tmp_path / f"{limit}.log", file_limit=limit)
        assert code == 1, said
        assert "Traceback" not in said
        told = said.splitlines()[-1]
        assert told.startswith("collapse: cannot write ")
        assert str(output) in told
        assert "Free space or choose another folder (" in told
        assert not (output / "config.json").exists()
        if limit > 1_000:
            record = json.loads((output / "training.json").read_text())
            assert record["problem"] in told
        code, said = runner.run(command, tmp_path / "log")
        assert code == 0, said
        assert (output / "model.safetensors").read_bytes() == model
        assert Run(output).record["problem"] is None
