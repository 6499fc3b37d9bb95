/** What is shown where there is no run to show. */
import type { RunsAnswer } from "../model/types";
import { retry, lost } from "./session";

function firstLines(logdir: string): string {
  return `import tb_nanwatch as nanwatch

model.fit(
    dataset,
    callbacks=[nanwatch.NanWatch(${folder(logdir)})],
)`;
}

/** A run's folder below the logdir, as a Python string. */
function folder(logdir: string): string {
  return JSON.stringify(`${(logdir === "" ? "logs" : logdir).replace(/[\\/]+$/, "")}/run1`);
}

export function Empty({ answer }: { readonly answer: RunsAnswer }) {
  return (
    <div class="blank">
      <h1>No recorded runs here yet</h1>
      <p>
        {answer.logdir === "" ? "The log directory" : <code>{answer.logdir}</code>} holds nothing that NanWatch wrote. Add one line to your training and this page fills while it runs:
      </p>
      <pre>{firstLines(answer.logdir)}</pre>
      <p class="quiet">
        For custom training loops: <code>step = nanwatch.watch(train_step, {folder(answer.logdir)}, model=model, optimizer=optimizer)</code>. This page looks again by itself.
      </p>
    </div>
  );
}

export function Loading({ what }: { readonly what: string }) {
  return (
    <div class="blank" role="status">
      <p class="quiet loading">{what}</p>
    </div>
  );
}

export function Problem({ title, reason }: { readonly title: string; readonly reason: string }) {
  return (
    <div class="blank" role="alert">
      <h1>{title}</h1>
      <p>{reason}</p>
      <button onClick={retry}>Try again</button>
    </div>
  );
}

/** Above everything while the server does not answer; what is shown stays. */
export function LostBanner() {
  const now = lost.value;
  if (!now) return null;
  return (
    <div class="banner" role="alert">
      <span>TensorBoard does not answer. What you see is from before; trying again every few seconds.</span>
      <span class="quiet">{now.reason}</span>
      <button onClick={retry}>Try now</button>
    </div>
  );
}
