/** Everything that happened in the run, in order: incidents and the recorder's notes. */
import { formatCount, formatCounts, words } from "../model/format";
import type { Incident, Report } from "../model/types";
import { endOf } from "./incidents";
import * as session from "./session";
import { VirtualList } from "./virtual";

interface Event {
  readonly step: number;
  readonly kind: string;
  readonly text: string;
  readonly incident?: Incident;
}

const ROW = 30;

export function Events({ report }: { readonly report: Report }) {
  const events = eventsOf(report);
  if (events.length === 0) return null;
  return (
    <section class="events" aria-label="Events">
      <h2>
        Events <span class="quiet">{formatCount(events.length)}</span>
      </h2>
      <div style={{ height: `${Math.min(9, events.length) * ROW + 2}px` }}>
        <VirtualList class="events-list" role="list" label="Events" count={events.length} rowHeight={ROW}>
          {(index) => <EventItem event={events[index]!} />}
        </VirtualList>
      </div>
    </section>
  );
}

function eventsOf(report: Report): readonly Event[] {
  const incidents = report.incidents.map((incident) => ({
    step: incident.first_step,
    kind: "incident",
    text: [incident.origin.phase, incident.origin.tensor || incident.origin.layer, formatCounts(incident.origin.output), endOf(incident, report.status === "mended")].filter((part) => part !== "").join(" · "),
    incident,
  }));
  return [...report.notes, ...incidents].sort((a, b) => a.step - b.step);
}

function EventItem({ event }: { readonly event: Event }) {
  const go = (): void => (event.incident ? session.jumpToIncident(event.incident) : session.jump(undefined, event.step));
  return (
    <div role="listitem" class={event.incident ? "event bad" : "event"}>
      <button onClick={go} title={event.text}>
        <span class="step">{formatCount(event.step)}</span>
        <span class="phase">{words(event.kind)}</span>
        <span class="text">{event.text}</span>
      </button>
    </div>
  );
}
