/** Why it happened and what to do about it. */
import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { formatCount, words } from "../model/format";
import { trialText } from "../model/origin";
import type { Cause, Finding, Remedy, Trial } from "../model/types";
import { Prose } from "./prose";

export function sure({ confidence }: Cause): string {
  return confidence === undefined ? "" : `${Math.round(100 * confidence)} % sure`;
}

export function Why({ cause, others }: { readonly cause: Cause; readonly others: readonly Cause[] }) {
  return (
    <section>
      <h3>Why</h3>
      <Candidate cause={cause} />
      {others.length > 0 && (
        <details class="told">
          <summary>{others.length === 1 ? "Another possible cause" : `${formatCount(others.length)} other possible causes`}</summary>
          {others.map((other, index) => (
            <Candidate key={index} cause={other} />
          ))}
        </details>
      )}
    </section>
  );
}

function Candidate({ cause }: { readonly cause: Cause }) {
  return (
    <div class="candidate">
      <p>
        <b class="sentence">{cause.name === "none" ? "not proven" : words(cause.name)}</b> {cause.name !== "none" && <span class="quiet">{sure(cause)}</span>}
      </p>
      {(cause.evidence ?? []).map((text, index) => (
        <p key={index} class="evidence">
          <Prose text={text} />
        </p>
      ))}
    </div>
  );
}

export function Remedies({ remedies }: { readonly remedies: readonly Remedy[] }) {
  const real = remedies.filter(({ name }) => name !== "none");
  if (real.length === 0) return null;
  return (
    <section>
      <h3>What to do</h3>
      {real.map((remedy, index) => (
        <RemedyItem key={index} remedy={remedy} />
      ))}
    </section>
  );
}

function titleOf({ name, title }: Remedy): string {
  return title ?? words(name);
}

/** What findings offer; nothing of it was tried, since nothing failed. */
export function remediesOf(findings: readonly Finding[]): readonly Remedy[] {
  return findings.flatMap(({ remedies }) => remedies ?? []).map((remedy) => ({ ...remedy, trial: null }));
}

/** The first remedy in one line, for the top of the page. */
export function Advice({ remedies }: { readonly remedies: readonly Remedy[] }) {
  const first = remedies.find(({ name }) => name !== "none");
  if (!first) return null;
  const note = first.trial?.note ?? "";
  return (
    <p class="advice">
      What to do: <b>{titleOf(first)}</b>
      {note !== "" && <span class="quiet"> ({note})</span>} <Outcome trial={first.trial} />
    </p>
  );
}

/** What came of trying it; nothing where nobody did. */
function Outcome({ trial }: { readonly trial: Trial | null | undefined }) {
  const { mark, text, control } = trialText(trial);
  if (!trial) return null;
  return (
    <span class={`trial ${mark}`}>
      {MARKS[mark]}
      {text}
      {control !== "" && <span class="quiet">; {control}</span>}
    </span>
  );
}

const MARKS = { good: "✓ ", bad: "✕ ", unsure: "? ", untried: "" } as const;

function RemedyItem({ remedy }: { readonly remedy: Remedy }) {
  const note = remedy.trial?.note ?? "";
  return (
    <div class="remedy">
      <p>
        <b class="sentence">{titleOf(remedy)}</b> <Outcome trial={remedy.trial} />
      </p>
      {note !== "" && <p class="quiet">{note}</p>}
      {remedy.why && (
        <p>
          <Prose text={remedy.why} />
        </p>
      )}
      {remedy.snippet && <Snippet text={remedy.snippet} />}
    </div>
  );
}

function Snippet({ text }: { readonly text: string }) {
  const shown = useRef<HTMLElement>(null);
  const label = useSignal("Copy");
  const copy = async (): Promise<void> => {
    label.value = (await copied(text, shown.current!)) ? "Copied" : "Selected";
    setTimeout(() => (label.value = "Copy"), 2000);
  };
  return (
    <div class="snippet">
      <button onClick={() => void copy()} aria-live="polite">
        {label.value}
      </button>
      <code ref={shown}>{text}</code>
    </div>
  );
}

/** Where a page that is not served from this machine may not use the clipboard, the text is selected for the user to copy. */
async function copied(text: string, shown: HTMLElement): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    getSelection()?.selectAllChildren(shown);
    return false;
  }
}
