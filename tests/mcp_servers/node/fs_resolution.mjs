// What the suite gets when it imports `fs`.

const fs = `export * from "node:fs"; import whole from "node:fs"; export const globSync = whole.globSync;`;

export async function resolve(specifier, context, next) {
  if (specifier === "fs" && context.parentURL?.includes("/conformance/")) {
    return { url: `data:text/javascript,${encodeURIComponent(fs)}`, shortCircuit: true };
  }
  return next(specifier, context);
}
