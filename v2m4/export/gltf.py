"""A :class:`GameAsset` as one .glb that engines load without extensions.

One mesh, one primitive, one material, one texture, one animation named after the asset. Every array is dense and has a
buffer view of its own: importers fail on sparse or missing ones. The node has no transform.
"""

from __future__ import annotations

import numpy as np
import pygltflib

from v2m4 import __version__
from v2m4.export.asset import GameAsset
from v2m4.formats import encode_png
from v2m4.glb import GlbBuilder


def to_glb(asset: GameAsset) -> bytes:
    """The file's bytes; the same asset gives the same bytes."""
    glb = GlbBuilder()
    gltf = glb.gltf
    gltf.asset = pygltflib.Asset(version="2.0", generator="v2m4", extras=_extras(asset))
    gltf.scenes[0].name = asset.file_name
    gltf.nodes = [pygltflib.Node(name=asset.file_name, mesh=0)]
    gltf.materials = [_material(glb, asset)]
    gltf.meshes = [_mesh(glb, asset)]
    if len(asset.deltas):
        gltf.animations = [_animation(glb, asset)]
    return glb.to_bytes()


def _extras(asset: GameAsset) -> dict[str, object]:
    about = {"name": asset.name, "exporter": f"v2m4 {__version__}"}
    return {**about, **asset.extras, "morph_normals": asset.normal_deltas is not None}


def _material(glb: GlbBuilder, asset: GameAsset) -> pygltflib.Material:
    image = glb.image(encode_png(asset.base_color), "image/png", f"{asset.file_name}_base_color")
    inside = bool((asset.split.uv >= 0).all() and (asset.split.uv <= 1).all())
    wrap = pygltflib.CLAMP_TO_EDGE if inside else pygltflib.REPEAT
    glb.gltf.samplers = [
        pygltflib.Sampler(magFilter=pygltflib.LINEAR, minFilter=pygltflib.LINEAR_MIPMAP_LINEAR, wrapS=wrap, wrapT=wrap)
    ]
    glb.gltf.textures = [pygltflib.Texture(sampler=0, source=image, name=f"{asset.file_name}_base_color")]
    return pygltflib.Material(
        name=asset.file_name,
        pbrMetallicRoughness=pygltflib.PbrMetallicRoughness(
            baseColorFactor=[1.0, 1.0, 1.0, 1.0],  # anything else would darken the texture
            baseColorTexture=pygltflib.TextureInfo(index=0, texCoord=0),
            metallicFactor=0.0,
            roughnessFactor=1.0,
        ),
        alphaMode=pygltflib.OPAQUE,
        alphaCutoff=None,
        doubleSided=asset.double_sided,
    )


def _mesh(glb: GlbBuilder, asset: GameAsset) -> pygltflib.Mesh:
    vertex = GlbBuilder.VERTICES
    # 65535 restarts a strip in some graphics interfaces, so the last 16-bit index is 65534.
    index_type = np.uint16 if len(asset.positions) <= 65535 else np.uint32
    primitive = pygltflib.Primitive(
        attributes=pygltflib.Attributes(
            POSITION=glb.accessor(asset.positions, bounds=True, target=vertex),
            NORMAL=glb.accessor(asset.normals, target=vertex),
            TEXCOORD_0=glb.accessor(asset.split.uv, target=vertex),
        ),
        indices=glb.accessor(asset.split.faces.astype(index_type).reshape(-1), target=GlbBuilder.INDICES),
        material=0,
        mode=pygltflib.TRIANGLES,
    )
    mesh = pygltflib.Mesh(name=asset.file_name, primitives=[primitive])
    if len(asset.deltas):
        for number, delta in enumerate(asset.deltas):
            target = pygltflib.Attributes(POSITION=glb.accessor(delta, bounds=True, target=vertex))
            if asset.normal_deltas is not None:
                target.NORMAL = glb.accessor(asset.normal_deltas[number], target=vertex)
            primitive.targets.append(target)
        mesh.weights = [0.0] * len(asset.deltas)  # the first pose
        mesh.extras = {"targetNames": list(asset.target_names)}
    return mesh


def _animation(glb: GlbBuilder, asset: GameAsset) -> pygltflib.Animation:
    times = glb.accessor(asset.track.key_times_s, bounds=True)
    weights = glb.accessor(asset.track.weights.reshape(-1))
    return pygltflib.Animation(
        name=asset.file_name,
        samplers=[pygltflib.AnimationSampler(input=times, output=weights, interpolation=pygltflib.ANIM_LINEAR)],
        channels=[
            pygltflib.AnimationChannel(
                sampler=0, target=pygltflib.AnimationChannelTarget(node=0, path=pygltflib.WEIGHTS)
            )
        ],
    )
