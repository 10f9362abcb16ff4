// node three_read.mjs FILE.glb TIME... -> what three.js makes of it: clip, morph weights and bounds at each time.
import { readFileSync } from "node:fs";

globalThis.self ??= globalThis; // three.js looks for a browser's name of the global object
const { AnimationMixer, Box3, Vector3 } = await import("three");
const { GLTFLoader } = await import("three/examples/jsm/loaders/GLTFLoader.js");

const [path, ...times] = process.argv.slice(2);
const bytes = readFileSync(path);
const loader = new GLTFLoader();
// Pictures need a browser: everything else of the file is read.
loader.register((parser) => {
  parser.loadTexture = async () => null;
  return { name: "no-pictures" };
});
const data = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
const gltf = await loader.parseAsync(data, "");
const meshes = [];
gltf.scene.traverse((node) => node.isMesh && meshes.push(node));
const [mesh] = meshes;
const clip = gltf.animations[0];
const mixer = new AnimationMixer(gltf.scene);
if (clip) mixer.clipAction(clip).setLoop(2200, 1).play().clampWhenFinished = true;

const poses = times.map((time) => {
  mixer.setTime(Number(time));
  const box = new Box3();
  const point = new Vector3();
  for (let i = 0; i < mesh.geometry.attributes.position.count; i++) box.expandByPoint(mesh.getVertexPosition(i, point));
  return { weights: [...(mesh.morphTargetInfluences ?? [])], min: box.min.toArray(), max: box.max.toArray() };
});
console.log(
  JSON.stringify({
    meshes: meshes.length,
    names: Object.keys(mesh.morphTargetDictionary ?? {}),
    clip: clip ? { name: clip.name, duration: clip.duration } : null,
    poses,
  }),
);
