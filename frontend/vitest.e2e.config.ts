import { defineConfig } from "vitest/config";

// One browser and one TensorBoard at a time: the scenarios share them and must not disturb each other.
export default defineConfig({
  test: {
    include: ["e2e/**/*.test.ts"],
    environment: "node",
    fileParallelism: false,
    testTimeout: 60_000,
    hookTimeout: 120_000,
  },
});
