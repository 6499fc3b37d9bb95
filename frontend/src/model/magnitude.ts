/**
 * Sixteen-bit codes for magnitudes and the bits of a cell's state, as the recorder writes them.
 * 0 not measured, 1 exactly zero, from 16 up finite: 2^((code - 16) / 72 - 451).
 */
export const ZERO = 1;
export const FIRST_FINITE = 16;
export const LAST_CODE = 65535;
const CODES_PER_OCTAVE = 72;
const LOWEST_OCTAVE = -451;
const OCTAVES_PER_DECADE = Math.log2(10);

export const NAN = 1;
export const POS_INF = 2;
export const NEG_INF = 4;
export const UNKNOWN = 8;
export const MEASURED = 16;
/** Any of the bits that mean "not finite". */
export const BAD = NAN | POS_INF | NEG_INF | UNKNOWN;

/** The magnitude of a code; undefined where it stands for no finite magnitude. */
export function magnitudeOf(code: number): number | undefined {
  if (code === ZERO) return 0;
  return code >= FIRST_FINITE ? 2 ** ((code - FIRST_FINITE) / CODES_PER_OCTAVE + LOWEST_OCTAVE) : undefined;
}

/** log10 of the magnitude of a finite, non-zero code. Unlike the magnitude itself it never overflows. */
export function decadesOf(code: number): number {
  return ((code - FIRST_FINITE) / CODES_PER_OCTAVE + LOWEST_OCTAVE) / OCTAVES_PER_DECADE;
}

/** The code nearest to 10^decades, held inside the finite codes. */
export function codeOfDecades(decades: number): number {
  const code = Math.round((decades * OCTAVES_PER_DECADE - LOWEST_OCTAVE) * CODES_PER_OCTAVE) + FIRST_FINITE;
  return Math.min(LAST_CODE, Math.max(FIRST_FINITE, code));
}

/** The one state that a cell with these bits is painted as: NaN before +Inf before -Inf before unknown; 0 if finite. */
export function worst(state: number): number {
  if (state & NAN) return NAN;
  if (state & POS_INF) return POS_INF;
  if (state & NEG_INF) return NEG_INF;
  return state & UNKNOWN;
}

/** What the bits say, in words: "NaN, +Inf". Empty for a finite state. */
export function stateWords(state: number): string {
  const words: string[] = [];
  if (state & NAN) words.push("NaN");
  if (state & POS_INF) words.push("+Inf");
  if (state & NEG_INF) words.push("−Inf");
  if (state & UNKNOWN && words.length === 0) words.push("not finite");
  return words.join(", ");
}
