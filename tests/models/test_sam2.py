"""SAM 2 by prompt, through the real loading code, on tiny random weights that the test makes."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from clips import moving
from fakecontext import FakeContext

from v2m4.errors import ConfigError, InputError, MissingBackend
from v2m4.models import sam2
from v2m4.models.sam2 import Prompt, Sam2
from v2m4.models.torchvision import import_torchvision


def tiny(folder: Path) -> Path:
    """A model of the same build, 128 pixels and a few channels wide, with random weights."""
    import_torchvision()
    transformers = pytest.importorskip("transformers", reason="transformers (the extra v2m4[sam2]) is not installed")
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    config = transformers.Sam2VideoConfig(
        vision_config={
            "backbone_config": {
                "model_type": "sam2_hiera_det_model", "hidden_size": 8, "image_size": [128, 128],
                "blocks_per_stage": [1, 1, 2, 1], "embed_dim_per_stage": [8, 16, 32, 64],
                "num_attention_heads_per_stage": [1, 1, 2, 2], "global_attention_blocks": [3],
                "window_size_per_stage": [8, 4, 4, 4],
            },
            "backbone_channel_list": [64, 32, 16, 8], "backbone_feature_sizes": [[32, 32], [16, 16], [8, 8]],
            "fpn_hidden_size": 128, "model_type": "sam2_vision_model",
        },
        prompt_encoder_config={"hidden_size": 128, "image_size": 128},
        mask_decoder_config={"hidden_size": 128, "mlp_dim": 64, "num_attention_heads": 2, "iou_head_hidden_dim": 32},
        image_size=128, memory_attention_hidden_size=128, memory_attention_num_layers=1,
        memory_attention_feed_forward_hidden_size=64, memory_attention_rope_feat_sizes=[8, 8],
        memory_encoder_hidden_size=128, memory_encoder_output_channels=64, mask_downsampler_embed_dim=128,
        memory_fuser_embed_dim=128, memory_fuser_intermediate_dim=64, memory_fuser_num_layers=1,
        num_maskmem=3, max_object_pointers_in_encoder=4,
    )  # fmt: skip
    transformers.Sam2VideoModel(config).save_pretrained(folder)
    return folder


def test_the_object_is_followed_frame_by_frame(tmp_path):
    model = Sam2("80,75", str(tiny(tmp_path / "model")))
    assert model.licence == "Apache-2.0"
    masks = [model.alpha(picture) for picture, _ in moving(3)]
    assert all(m.shape == (200, 280) and m.dtype == np.uint8 for m in masks)
    assert any((masks[0] != m).any() for m in masks[1:])
    again = Sam2("80,75", str(tmp_path / "model"))
    for (picture, _), mask in zip(moving(3), masks, strict=True):
        np.testing.assert_array_equal(again.alpha(picture), mask)  # the same clip, the same masks


def test_the_prompt_decides(tmp_path):
    folder, picture = str(tiny(tmp_path / "model")), moving(1)[0][0]
    first = Sam2("80,75", folder).alpha(picture)
    for other in ("200,150", "40,40,150,150"):
        assert (Sam2(other, folder).alpha(picture) != first).any()


def test_what_is_remembered_does_not_grow(tmp_path):
    model = Sam2("80,75", str(tiny(tmp_path / "model")))
    sizes = []
    for picture, _ in moving(6, step=(1, 0)) * 3:
        model.alpha(picture)
        kept = model._session.output_dict_per_obj[0]["non_cond_frame_outputs"]
        sizes.append((len(kept), len(model._session.processed_frames), len(model._session.frames_tracked_per_obj[0])))
    assert sizes[-1] == sizes[8] and max(s[0] for s in sizes) <= 5 and sizes[-1][1] == 0


def test_what_is_dropped_was_not_read_any_more(tmp_path, monkeypatch):
    folder, clip = str(tiny(tmp_path / "model")), moving(9, step=(1, 0))
    pruned, whole = Sam2("80,75", folder), Sam2("80,75", folder)
    monkeypatch.setattr(whole, "_forget", lambda: None)
    for picture, _ in clip:
        np.testing.assert_array_equal(pruned.alpha(picture), whole.alpha(picture))
    assert len(whole._session.processed_frames) == 9


def test_weights_that_lack_something_are_refused(tmp_path):
    folder = tiny(tmp_path / "model")
    tensors = pytest.importorskip("safetensors.torch")
    kept = tensors.load_file(folder / "model.safetensors")
    kept.pop(next(name for name in kept if name.startswith("mask_decoder")))
    tensors.save_file(kept, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match="1 arrays are missing"):
        Sam2("80,75", str(folder))


def test_the_best_model_in_the_folder_is_taken(tmp_path):
    tiny(tmp_path / "sam2.1-hiera-tiny")
    assert Sam2("80,75", None, tmp_path).alpha(moving(1)[0][0]).shape == (200, 280)
    assert sam2._local(None, tmp_path) == tmp_path / "sam2.1-hiera-tiny"
    (tmp_path / "sam2.1-hiera-large").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "sam2.1-hiera-large" / name).write_bytes(b"{}")
    assert sam2._local(None, tmp_path) == tmp_path / "sam2.1-hiera-large"
    with pytest.raises(InputError, match="not the weights of SAM 2"):
        Sam2("80,75", "sam2.1-hiera-large", tmp_path)


def test_without_weights_nothing_is_fetched(tmp_path, monkeypatch):
    pytest.importorskip("transformers", reason="transformers (the extra v2m4[sam2]) is not installed")
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    asked = []
    real = hub.snapshot_download

    def watched(repo, **options):
        asked.append(options.get("local_files_only", False))
        return real(repo, **{**options, "local_files_only": True, "cache_dir": tmp_path / "cache"})

    monkeypatch.setattr(hub, "snapshot_download", watched)
    with pytest.raises(InputError, match="no weights of SAM 2 on disk") as missing:
        Sam2("80,75", None, tmp_path)
    assert asked and all(asked) and "weights-dir" in missing.value.hint

    log = FakeContext(tmp_path)
    with pytest.raises(InputError, match=r"sam2\.1-hiera-tiny could not be fetched"):
        Sam2("80,75", "sam2.1-hiera-tiny", tmp_path, log=log)
    assert len(log.messages) == 1 and all(
        part in log.messages[0]
        for part in ("156 MB", "Apache-2.0", "huggingface.co/facebook/sam2.1-hiera-tiny", "--weights-dir")
    )


def test_a_package_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingBackend) as missing:
        Sam2("80,75")
    assert "v2m4[sam2]" in missing.value.hint and "constraints.txt" in missing.value.hint


@pytest.mark.parametrize("text", ["", "80", "80,", "a,b", "1,2,3", "nan,3", "50,50,40,90", "1,2,3,4,5"])
def test_what_is_no_prompt_is_refused(text):
    with pytest.raises(ConfigError, match=r"ingest\.prompt"):
        Prompt.parse(text)


def test_a_prompt_in_the_pixels_of_the_network():
    np.testing.assert_allclose(Prompt.parse("64, 36").scaled(128, 72, 1024), [[512, 512]])
    np.testing.assert_allclose(Prompt.parse("0,0,128,72").scaled(128, 72, 1024), [[0, 0], [1024, 1024]])
    with pytest.raises(InputError, match="outside the first frame, 128x72"):
        Prompt.parse("130,10").scaled(128, 72, 1024)


def test_a_model_that_is_none_is_named(tmp_path):
    pytest.importorskip("transformers", reason="transformers (the extra v2m4[sam2]) is not installed")
    with pytest.raises(ConfigError, match="no SAM 2 model") as wrong:
        Sam2("80,75", "sam2.1-hiera-tinny", tmp_path)
    assert "sam2.1-hiera-tiny" in wrong.value.hint
