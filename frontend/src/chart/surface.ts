/** A canvas that follows the size and the pixel ratio of its place. */

/** Sets the canvas's backing store to `width` by `height` CSS pixels and returns a context scaled to CSS pixels. */
export function prepare(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D | undefined {
  const ratio = pixelRatio();
  const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== w) canvas.width = w;
  if (canvas.height !== h) canvas.height = h;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  if (!context) return undefined;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

export function pixelRatio(): number {
  return Math.min(3, Math.max(1, window.devicePixelRatio || 1));
}

/** Runs `draw` once before the next frame, however often it is asked to. */
export function framed(draw: () => void): () => void {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      draw();
    });
  };
}

/** `text` shortened to `width` with an ellipsis in it; two thirds of what stays are the end, which tells the layers of a path apart. */
export function fitted(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  const cut = (kept: number): string => `${text.slice(0, Math.floor(kept / 3))}…${text.slice(text.length - (kept - Math.floor(kept / 3)))}`;
  let [shortest, longest] = [0, text.length];
  while (shortest < longest) {
    const middle = (shortest + longest + 1) >> 1;
    if (context.measureText(cut(middle)).width <= width) shortest = middle;
    else longest = middle - 1;
  }
  return cut(shortest);
}
