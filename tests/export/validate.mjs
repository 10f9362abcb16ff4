// node validate.mjs FILE.glb... -> one JSON line per file with the report of the Khronos validator.
import { readFileSync } from "node:fs";
import { validateBytes } from "gltf-validator";

for (const path of process.argv.slice(2)) {
  const report = await validateBytes(new Uint8Array(readFileSync(path)), { uri: path, maxIssues: 20 });
  console.log(JSON.stringify({ issues: report.issues, info: report.info }));
}
