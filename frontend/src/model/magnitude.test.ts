import { expect, test } from "vitest";
import { BAD, MEASURED, NAN, NEG_INF, POS_INF, UNKNOWN, codeOfDecades, decadesOf, magnitudeOf, stateWords, worst } from "./magnitude";

test("codes stand for the magnitudes that the recorder encodes", () => {
  expect(magnitudeOf(0)).toBeUndefined();
  expect(magnitudeOf(1)).toBe(0);
  expect(magnitudeOf(5)).toBeUndefined();
  expect(magnitudeOf(16 + 72 * 451)).toBe(1);
  expect(magnitudeOf(16 + 72 * 461)).toBe(1024);
});

test("decades and codes are inverse, and held at the ends", () => {
  for (const decades of [-120, -3, 0, 0.5, 38]) expect(decadesOf(codeOfDecades(decades))).toBeCloseTo(decades, 2);
  expect(codeOfDecades(-1000)).toBe(16);
  expect(codeOfDecades(1000)).toBe(65535);
});

test("one NaN outweighs everything, and finite cells are not trouble", () => {
  expect(worst(NAN | POS_INF | MEASURED)).toBe(NAN);
  expect(worst(POS_INF | NEG_INF)).toBe(POS_INF);
  expect(worst(NEG_INF | UNKNOWN)).toBe(NEG_INF);
  expect(worst(UNKNOWN | MEASURED)).toBe(UNKNOWN);
  expect(worst(MEASURED)).toBe(0);
  expect(MEASURED & BAD).toBe(0);
});

test("states in words", () => {
  expect(stateWords(NAN | NEG_INF)).toBe("NaN, −Inf");
  expect(stateWords(UNKNOWN)).toBe("not finite");
  expect(stateWords(MEASURED)).toBe("");
});
