/** What happened, in the report's own words, what to do, and the facts. Where the op is known, its line; else the first paragraph. The rest is told beside the heatmap. */
import { formatAgo, formatCount, formatSteps, words } from "../model/format";
import type { Report, RunSummary } from "../model/types";
import { makerOf } from "../model/origin";
import { Lead } from "./origin";
import { Prose } from "./prose";
import { Advice, remediesOf } from "./remedies";
import { LiveDot } from "./runs";
import * as session from "./session";
import { STATUS_WORDS, StatusSign } from "./status";

export function Verdict({ run, report, brief }: { readonly run: RunSummary; readonly report: Report; readonly brief: boolean }) {
  const first = report.incidents[0];
  const made = first !== undefined && makerOf(first) !== undefined;
  return (
    <header class={`verdict ${report.status}`}>
      <p class="over">
        <StatusSign status={report.status} />
        <span class="status-word">{STATUS_WORDS[report.status]}</span>
        <span class="run-title">{run.run === "." ? "" : run.run}</span>
        {session.live.value && <LiveDot />}
      </p>
      <h1>
        <Prose text={report.headline} />
      </h1>
      {made && <Lead incident={first} headline={report.headline} />}
      {report.paragraphs.slice(0, made ? 0 : brief ? 1 : undefined).map((text, index) => (
        <p key={index} class="paragraph">
          <Prose text={text} />
        </p>
      ))}
      {report.status === "incident" && first && <Advice remedies={first.remedies ?? []} />}
      {report.status === "warning" && <Advice remedies={remediesOf(report.findings)} />}
      <Facts run={run} report={report} />
    </header>
  );
}

function Facts({ run, report }: { readonly run: RunSummary; readonly report: Report }) {
  const facts: [string, string][] = [];
  if (report.status === "incident" && report.last_finite_step !== null) facts.push(["Last finite step", formatCount(report.last_finite_step)]);
  if (report.status === "incident" && report.last_finite_step === null) facts.push(["Last finite step", "none"]);
  facts.push(["Steps", formatCount(run.steps)], ["Tensors", formatCount(run.tensors)]);
  const age = session.clock.value - run.updated;
  facts.push([run.ended ? "Ended" : session.live.value ? "Last heard" : "Went silent", formatAgo(age)]);
  const made = [words(report.about?.entry_point ?? ""), ...["tensorflow", "keras"].map((name) => version(report, name))].filter((part) => part !== "");
  if (made.length > 0) facts.push(["Recorded by", made.join(", ")]);
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
      {run.attempts.length > 1 && <Attempts run={run} />}
    </dl>
  );
}

/** A run that was started again may have done some steps twice: what is shown is the newest, or one start as it was. */
function Attempts({ run }: { readonly run: RunSummary }) {
  const chosen = session.selection.value.attempt;
  return (
    <div>
      <dt>Shown</dt>
      <dd>
        <select
          aria-label="Attempt"
          value={chosen === null ? "" : String(chosen)}
          onChange={(event) => session.act({ do: "attempt", attempt: event.currentTarget.value === "" ? null : Number(event.currentTarget.value) })}
        >
          <option value="">all {run.attempts.length} starts, the newest of each step</option>
          {run.attempts.map(({ attempt, first_step: first, last_step: last }) => (
            <option key={attempt} value={String(attempt)}>
              start {attempt + 1} only: {formatSteps(first, last)}
            </option>
          ))}
        </select>
      </dd>
    </div>
  );
}

function version(report: Report, name: string): string {
  const found = report.about?.versions?.[name];
  return found ? `${name === "tensorflow" ? "TensorFlow" : "Keras"} ${found}` : "";
}

export function Damage({ items, title }: { readonly items: readonly string[]; readonly title: string }) {
  if (items.length === 0) return null;
  return (
    <details class="damage" open={items.length <= 3}>
      <summary>
        {title}: {items.length} {items.length === 1 ? "problem" : "problems"}
      </summary>
      <ul>
        {items.slice(0, 100).map((text, index) => (
          <li key={index}>{text}</li>
        ))}
      </ul>
      {items.length > 100 && <p class="quiet">and {formatCount(items.length - 100)} more</p>}
    </details>
  );
}
