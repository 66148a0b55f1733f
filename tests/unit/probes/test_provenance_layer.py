from pathlib import Path

import orjson
import pytest

from harness.probes import provenance


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / "weights.bin").write_bytes(bytes(range(256)) * 4096)
    (folder / "sub" / "config.json").write_text("{}")
    provenance.write_manifest(folder)
    return folder


def failing(folder: Path) -> dict[str, str]:
    return {c.name: c.detail for c in provenance.run(folder).checks if not c.ok}


def test_an_unchanged_folder_passes(model: Path) -> None:
    result = provenance.run(model)
    assert (result.status, result.facts["bytes"]) == ("passed", 256 * 4096 + 2)


def test_one_altered_byte_is_named(model: Path) -> None:
    with (model / "weights.bin").open("r+b") as file:
        file.seek(1000)
        file.write(b"\xff")
    assert failing(model) == {"weights.bin": "SHA-256 differs"}


def test_a_missing_file_is_named(model: Path) -> None:
    (model / "sub" / "config.json").unlink()
    assert failing(model) == {"sub/config.json": "missing"}


def test_a_file_beside_the_manifest_is_named(model: Path) -> None:
    (model / "extra.txt").write_text("x")
    assert failing(model) == {"no file beside the manifest": "extra.txt"}


def test_a_file_that_changes_while_it_is_read_is_not_stable(model: Path) -> None:
    path = model / "weights.bin"
    grown = provenance.digest_file(path, model, lambda _n: path.write_bytes(b"other"))
    assert not grown.stable


def test_without_a_manifest_nothing_is_validated(model: Path) -> None:
    (model / provenance.MANIFEST_NAME).unlink()
    assert provenance.run(model).status == "not_validated"


def test_the_manifest_names_sizes_and_digests(model: Path) -> None:
    manifest = orjson.loads((model / provenance.MANIFEST_NAME).read_bytes())
    assert manifest["files"]["sub/config.json"] == {
        "size": 2,
        "sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
    }


def test_progress_ends_at_the_whole(model: Path) -> None:
    seen: list[tuple[int, int]] = []
    provenance.digest_folder(model, workers=1, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (256 * 4096 + 2, 256 * 4096 + 2)
