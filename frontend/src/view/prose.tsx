/** A sentence of the report, in which `backticks` part code from words. Text, whatever it looks like. */
export function Prose({ text }: { readonly text: string }) {
  return <>{text.split(/`([^`]+)`/).map((part, index) => (index % 2 === 1 ? <code key={index}>{part}</code> : <Words key={index} text={part} />))}</>;
}

/** Keeps "-Inf" and "5.87e-5" in one piece: a line may end after a hyphen. */
function Words({ text }: { readonly text: string }) {
  return <>{text.split(/([+-]Inf\b|-?\d[\d,.]*e[+-]\d+|(?<!\S)-\d[\d,.]*)/).map((part, index) => (index % 2 === 1 ? <span key={index} class="number">{part}</span> : part))}</>;
}
