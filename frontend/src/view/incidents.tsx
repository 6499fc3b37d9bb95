/** Beside the heatmap: each incident with where, why, what to do and how it spread; the findings; the report's text. */
import { formatCount, formatCounts, formatNumber, formatSteps, fromJson, words } from "../model/format";
import { placeOf } from "../model/rows";
import type { Cause, Finding, Incident, Origin, Remedy, Report, SpreadStep } from "../model/types";
import * as session from "./session";

const SHOWN = 8;

export function Story({ report }: { readonly report: Report }) {
  const { incidents, findings } = report;
  if (incidents.length === 0 && findings.length === 0) return null;
  const open = session.openIncident.value;
  // Many incidents: the first ones, and the open one wherever it is. All of them are in the list of events below.
  const listed = incidents.map((incident, index) => ({ incident, index })).filter(({ index }) => index < SHOWN || index === open);
  return (
    <aside class="story" aria-label="Incidents and findings">
      {incidents.length > 0 && (
        <h2>
          {incidents.length === 1 ? "Incident" : "Incidents"} {incidents.length > 1 && <span class="quiet">{formatCount(incidents.length)}</span>}
        </h2>
      )}
      {listed.map(({ incident, index }) => (
        <IncidentItem key={index} incident={incident} open={index === open} />
      ))}
      {incidents.length > listed.length && <p class="quiet">{formatCount(incidents.length - listed.length)} more in the list of events.</p>}
      {findings.length > 0 && <h2>Findings</h2>}
      {findings.map((finding, index) => (
        <FindingItem key={index} finding={finding} />
      ))}
      {report.paragraphs.length > 1 && (
        <details class="told">
          <summary>The whole story in words</summary>
          {report.paragraphs.map((text, index) => (
            <p key={index}>{text}</p>
          ))}
        </details>
      )}
    </aside>
  );
}

function IncidentItem({ incident, open }: { readonly incident: Incident; readonly open: boolean }) {
  const { origin } = incident;
  const counts = formatCounts(origin.output);
  const end = incident.recovered ? (incident.last_step === null ? "recovered" : `recovered after step ${formatCount(incident.last_step)}`) : "did not recover";
  return (
    <article class={open ? "incident open" : "incident"}>
      <button class="incident-head" aria-expanded={open} onClick={() => session.jumpToIncident(incident)} title="Show it in the heatmap">
        <span class="step">step {formatCount(incident.first_step)}</span>
        <span class="phase">{origin.phase}</span>
        <span class="tensor">{origin.tensor || origin.layer || "unknown tensor"}</span>
        <span class="quiet">
          {[counts, end].filter((part) => part !== "").join(" · ")}
        </span>
      </button>
      {open && (
        <div class="incident-body">
          <Where origin={origin} />
          {incident.cause && incident.cause.name !== "none" && <Why cause={incident.cause} others={incident.other_causes ?? []} />}
          <Remedies remedies={incident.remedies ?? []} />
          <Spread spread={incident.spread ?? []} step={incident.first_step} />
        </div>
      )}
    </article>
  );
}

function Where({ origin }: { readonly origin: Origin }) {
  const { source, op_type: op, samples, replica } = origin;
  const inputs = origin.inputs ?? [];
  const touched = [samples && samples.length > 0 ? `sample ${samples.slice(0, 12).map(formatCount).join(", ")}${samples.length > 12 ? " …" : ""}` : "", replica !== null && replica !== undefined && replica > 0 ? `replica ${replica}` : ""];
  if (!op && !source && inputs.length === 0) return null;
  return (
    <section>
      <h3>Where</h3>
      {op && (
        <p>
          <code>{op}</code> {touched.filter((part) => part !== "").join(", ")}
        </p>
      )}
      {source && source.file !== "" && (
        <>
          <p class="quiet">
            {source.file}:{source.line}
            {source.function !== "" && ` in ${source.function}`}
          </p>
          {source.code !== "" && <pre>{source.code}</pre>}
        </>
      )}
      {inputs.slice(0, 4).map((input, index) => (
        <p key={index} class="quiet">
          input {input.name}: {formatNumber(fromJson(input.min) ?? NaN)} to {formatNumber(fromJson(input.max) ?? NaN)}
          {input.nan > 0 && `, ${formatCount(input.nan)} NaN`}
          {input.inf > 0 && `, ${formatCount(input.inf)} Inf`}
          {input.zero > 0 && `, ${formatCount(input.zero)} zeros`}
        </p>
      ))}
    </section>
  );
}

function Why({ cause, others }: { readonly cause: Cause; readonly others: readonly Cause[] }) {
  const sure = (candidate: Cause): string => (candidate.confidence === undefined ? "" : `${Math.round(100 * candidate.confidence)} % sure`);
  return (
    <section>
      <h3>Why</h3>
      <p>
        <b>{words(cause.name)}</b> <span class="quiet">{sure(cause)}</span>
      </p>
      {(cause.evidence ?? []).map((text, index) => (
        <p key={index} class="evidence">{text}</p>
      ))}
      {others.length > 0 && <p class="quiet">Also possible: {others.map((other) => [words(other.name), sure(other)].filter((part) => part !== "").join(", ")).join("; ")}</p>}
    </section>
  );
}

const OUTCOMES: Readonly<Record<string, string>> = { finite: "tried: stayed finite", nonfinite: "tried: did not help", inconclusive: "tried: inconclusive", not_run: "" };

function Remedies({ remedies }: { readonly remedies: readonly Remedy[] }) {
  if (remedies.length === 0) return null;
  return (
    <section>
      <h3>What to do</h3>
      {remedies.map((remedy, index) => {
        const outcome = remedy.trial ? (OUTCOMES[remedy.trial.outcome] ?? "") : "";
        return (
          <div key={index} class="remedy">
            <p>
              <b>{words(remedy.name)}</b> {outcome !== "" && <span class={remedy.trial?.outcome === "finite" ? "good" : "quiet"}>{outcome}</span>}
            </p>
            {remedy.why && <p>{remedy.why}</p>}
            {remedy.snippet && <pre>{remedy.snippet}</pre>}
          </div>
        );
      })}
    </section>
  );
}

const STOPS = 12;

function Spread({ spread, step }: { readonly spread: readonly SpreadStep[]; readonly step: number }) {
  const tables = session.detail.value?.tables;
  if (spread.length === 0 || !tables) return null;
  const ordered = [...spread].sort((a, b) => a.order - b.order);
  return (
    <section>
      <h3>How it spread</h3>
      <ol class="spread">
        {ordered.slice(0, STOPS).map((stop) => {
          const place = placeOf(tables, stop.phase, stop.tensor);
          const name = place?.row.name ?? stop.tensor;
          return (
            <li key={stop.order}>
              <span class="phase">{stop.phase}</span>
              {place ? (
                <button class="link" title={stop.tensor} onClick={() => session.jump(place, stop.step ?? step)}>
                  {name}
                </button>
              ) : (
                <span class="tensor">{name}</span>
              )}
            </li>
          );
        })}
      </ol>
      {ordered.length > STOPS && <p class="quiet">and {formatCount(ordered.length - STOPS)} more tensors</p>}
    </section>
  );
}

function FindingItem({ finding }: { readonly finding: Finding }) {
  return (
    <article class="incident">
      <button class="incident-head" onClick={() => session.jumpToFinding(finding)} title="Show it in the heatmap">
        <span class="phase">{finding.severity}</span>
        <span class="tensor">{words(finding.rule)}</span>
        <span class="quiet">
          {[finding.tensor, formatSteps(finding.first_step, finding.last_step)].filter((part) => part !== "").join(" · ")}
        </span>
      </button>
      <div class="incident-body">
        {finding.evidence.map((text, index) => (
          <p key={index} class="evidence">{text}</p>
        ))}
        <Remedies remedies={(finding.remedies ?? []).map((remedy) => (typeof remedy === "string" ? { name: remedy } : remedy))} />
      </div>
    </article>
  );
}
