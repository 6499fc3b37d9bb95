import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Poller } from "./polling";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test("asks again as often as the answer says, and never after a zero", async () => {
  const answers = [5, 5, 0];
  let rounds = 0;
  const poller = new Poller({ round: async () => answers[rounds++] ?? 0, failed: () => undefined, hidden: () => false });
  await poller.now();
  await vi.advanceTimersByTimeAsync(4999);
  expect(rounds).toBe(1);
  await vi.advanceTimersByTimeAsync(1);
  expect(rounds).toBe(2);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(rounds).toBe(3);
});

test("waits longer and longer while there is no answer, up to half a minute", async () => {
  const waits: number[] = [];
  const poller = new Poller({ round: () => Promise.reject(new Error("down")), failed: (_, seconds) => waits.push(seconds), hidden: () => false });
  await poller.now();
  await vi.advanceTimersByTimeAsync(100_000);
  expect(waits.slice(0, 7)).toEqual([1, 2, 4, 8, 16, 30, 30]);
  poller.stop();
});

test("rests while nobody looks, and catches up at once when somebody does", async () => {
  let [rounds, hidden] = [0, true];
  const poller = new Poller({ round: async () => (rounds++, 5), failed: () => undefined, hidden: () => hidden });
  await poller.now();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(rounds).toBe(1);
  hidden = false;
  poller.woke();
  await vi.advanceTimersByTimeAsync(0);
  expect(rounds).toBe(2);
  poller.woke();
  expect(rounds).toBe(2);
  poller.stop();
});

test("a question that was overtaken does not plan a second chain", async () => {
  let rounds = 0;
  const poller = new Poller({ round: async () => (rounds++, 10), failed: () => undefined, hidden: () => false });
  await Promise.all([poller.now(), poller.now(), poller.now()]);
  expect(rounds).toBe(3);
  await vi.advanceTimersByTimeAsync(10_000);
  expect(rounds).toBe(4);
  poller.stop();
});
