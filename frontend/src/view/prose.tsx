/** A sentence of the report, in which `backticks` part code from words. Text, whatever it looks like. */
export function Prose({ text }: { readonly text: string }) {
  return <>{text.split(/`([^`]+)`/).map((part, index) => (index % 2 === 1 ? <code key={index}>{part}</code> : part))}</>;
}
