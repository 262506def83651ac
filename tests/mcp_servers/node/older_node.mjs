// Preloaded (`node --import`): lets the conformance suite load on Node before 22, whose `fs` has no `globSync`; what we
// ask of the suite never calls it.

import { register } from "node:module";

register(import.meta.resolve("./fs_resolution.mjs"));
