/** Beside the heatmap: each incident with where, why, what to do and how it spread; the findings; the report's text. */
import { formatCount, formatCounts, formatSteps, words } from "../model/format";
import { placeOf } from "../model/rows";
import type { Finding, Incident, Report, SpreadStep } from "../model/types";
import { Around, Where } from "./origin";
import { Prose } from "./prose";
import { Remedies, Why, remediesOf } from "./remedies";
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
        <IncidentItem key={index} incident={incident} open={index === open} mended={report.status === "mended"} />
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
            <p key={index}>
              <Prose text={text} />
            </p>
          ))}
        </details>
      )}
    </aside>
  );
}

function IncidentItem({ incident, open, mended }: { readonly incident: Incident; readonly open: boolean; readonly mended: boolean }) {
  const { origin } = incident;
  const counts = formatCounts(origin.output);
  const end = endOf(incident, mended);
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
          <Where incident={incident} />
          {incident.cause && <Why cause={incident.cause} others={incident.other_causes ?? []} />}
          <Remedies remedies={incident.remedies ?? []} />
          <Around incident={incident} />
          <Spread spread={incident.spread ?? []} step={incident.first_step} />
        </div>
      )}
    </article>
  );
}

/** How an incident ended, in a run that was mended and started again or in another. */
export function endOf({ recovered, last_step: last }: Incident, mended: boolean): string {
  if (recovered) return last === null ? "recovered" : `recovered after step ${formatCount(last)}`;
  return mended ? "over since the run was started again" : "did not recover";
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
          const place = placeOf(tables, stop.phase, stop.tensor, "", stop.kind);
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
          <p key={index} class="evidence">
            <Prose text={text} />
          </p>
        ))}
        <Remedies remedies={remediesOf([finding])} />
      </div>
    </article>
  );
}
