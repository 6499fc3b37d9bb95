/** The list of runs, with a filter and keys. */
import { useSignal } from "@preact/signals";
import { formatAgo, formatCount } from "../model/format";
import type { RunSummary } from "../model/types";
import * as session from "./session";
import { STATUS_WORDS, StatusSign } from "./status";
import { VirtualList } from "./virtual";

const ROW = 78;
const SELECTED = "selected-run";

export function RunList() {
  const filter = useSignal("");
  const all = session.answer.value?.runs ?? [];
  const wanted = filter.value.trim().toLowerCase();
  const runs = wanted === "" ? all : all.filter((run) => `${run.run} ${run.status} ${plain(run.headline)}`.toLowerCase().includes(wanted));
  const selected = runs.findIndex((run) => run.run === session.selection.value.run);
  const choose = (index: number): void => {
    const run = runs[Math.min(runs.length - 1, Math.max(0, index))];
    if (run) session.act({ do: "run", run: run.run });
  };
  const keys = (event: KeyboardEvent): void => {
    const target = { ArrowDown: selected + 1, ArrowUp: selected - 1, Home: 0, End: runs.length - 1 }[event.key];
    if (target === undefined) return;
    event.preventDefault();
    choose(target);
  };
  return (
    <nav class="runs" aria-label="Runs">
      <div class="runs-head">
        <h2>
          Runs <span class="quiet">{wanted === "" ? formatCount(all.length) : `${runs.length} of ${all.length}`}</span>
        </h2>
        {all.length > 1 && (
          <input
            type="search"
            placeholder="Filter"
            aria-label="Filter runs by name, status or headline"
            value={filter.value}
            onInput={(event) => (filter.value = event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key === "ArrowDown" || event.key === "ArrowUp") keys(event);
            }}
          />
        )}
      </div>
      <VirtualList class="runs-list" role="listbox" label="Runs" count={runs.length} rowHeight={ROW} tabIndex={0} focus={selected} active={selected >= 0 ? SELECTED : undefined} onKeyDown={keys}>
        {(index) => <RunItem run={runs[index]!} selected={index === selected} />}
      </VirtualList>
    </nav>
  );
}

function RunItem({ run, selected }: { readonly run: RunSummary; readonly selected: boolean }) {
  const age = session.clock.value - run.updated;
  const isLive = !run.ended && age < session.SILENT_SECONDS;
  return (
    <div class="run" role="option" id={selected ? SELECTED : undefined} aria-selected={selected} onClick={() => session.act({ do: "run", run: run.run })} title={`${run.run}\n${plain(run.headline)}`}>
      <div class="run-name">
        <StatusSign status={run.status} />
        <span class="name">{run.run === "." ? "(this folder)" : run.run}</span>
        {isLive && <LiveDot />}
      </div>
      <div class="quiet run-facts">
        {STATUS_WORDS[run.status]} · {formatCount(run.steps)} steps{isLive || run.updated <= 0 ? "" : ` · ${formatAgo(age)}`}
      </div>
      <div class="quiet run-headline">{plain(run.headline)}</div>
    </div>
  );
}

export function LiveDot() {
  return <span class="live">live</span>;
}

/** A headline without the backticks around code. */
function plain(headline: string): string {
  return headline.replaceAll("`", "");
}
