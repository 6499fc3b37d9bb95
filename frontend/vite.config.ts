import { defineConfig } from "vite";
import { thirdPartyLicenses } from "./licenses.config.ts";

// One fixed entry that TensorBoard imports; no HTML, so styles are imported as text (`?inline`) by src/main.ts.
export default defineConfig({
  base: "./",
  publicDir: false,
  build: {
    outDir: "../tb_nanwatch/plugin/static",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: false,
    reportCompressedSize: false,
    rollupOptions: {
      input: "src/main.ts",
      preserveEntrySignatures: "exports-only",
      output: { entryFileNames: "index.js", chunkFileNames: "assets/[name].js", assetFileNames: "assets/[name][extname]" },
    },
  },
  plugins: [thirdPartyLicenses()],
});
