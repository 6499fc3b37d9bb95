/** The page: runs at the left, the selected run's story, heatmap, lines and events. */
import { useSignalEffect } from "@preact/signals";
import { Events } from "./events";
import { Heatmap } from "./heatmap";
import { Story } from "./incidents";
import { Lines } from "./lines";
import { RunList } from "./runs";
import * as session from "./session";
import { Empty, Loading, LostBanner, Problem } from "./states";
import { Damage, Verdict } from "./verdict";

export function App() {
  useSignalEffect(() => {
    document.documentElement.dataset["theme"] = session.theme.value;
  });
  const answer = session.answer.value;
  return (
    <>
      <LostBanner />
      {answer === undefined || answer.runs.length === 0 ? <NoRuns /> : (
        <div class="page">
          <RunList />
          <main>
            <Damage items={answer.damage} title="Some files could not be read" />
            <Selected />
          </main>
        </div>
      )}
    </>
  );
}

function NoRuns() {
  const answer = session.answer.value;
  if (answer === undefined) {
    const lost = session.lost.value;
    return lost ? <Problem title="TensorBoard does not answer" reason={lost.reason} /> : <Loading what="Looking for runs …" />;
  }
  return (
    <main>
      <Damage items={answer.damage} title="Some files could not be read" />
      {answer.loading ? <Loading what="Reading the log directory …" /> : <Empty answer={answer} />}
    </main>
  );
}

function Selected() {
  const run = session.run.value;
  const now = session.detail.value;
  if (!run) return <Problem title="This run is not here" reason={`There is no run named ${session.selection.value.run ?? ""} in this log directory. Choose another from the list.`} />;
  if (run.status === "empty") return <Loading what={`${run.headline}. Steps appear here as they come.`} />;
  if (!now) return session.detailError.value === undefined ? <Loading what="Reading the run …" /> : <Problem title="The run could not be read" reason={session.detailError.value} />;
  const storied = now.report.incidents.length + now.report.findings.length > 0;
  return (
    <>
      {session.detailError.value !== undefined && <p class="problem">The newest steps could not be loaded: {session.detailError.value}</p>}
      <Verdict run={run} report={now.report} brief={storied} />
      <Damage items={now.report.damage} title="This run's files are damaged" />
      <div class={storied ? "columns" : "columns plain"}>
        <Story report={now.report} />
        <div class="charts">
          <Heatmap />
          <Lines />
          <Events report={now.report} />
        </div>
      </div>
    </>
  );
}
