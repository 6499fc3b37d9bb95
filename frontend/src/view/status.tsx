/** The state of a run as a sign: a shape of its own each, so that it is told apart without colour. */
import type { Status } from "../model/types";

export const STATUS_WORDS: Readonly<Record<Status, string>> = { healthy: "Healthy", warning: "Warning", incident: "Incident", mended: "Mended", empty: "No data yet" };

export function StatusSign({ status }: { readonly status: Status }) {
  return (
    <svg class={`sign ${status}`} viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">
      {status === "incident" && (
        <>
          <circle cx="8" cy="8" r="7.5" />
          <path d="M5.2 5.2l5.6 5.6M10.8 5.2l-5.6 5.6" />
        </>
      )}
      {status === "warning" && (
        <>
          <polygon points="8,1 15.6,14.6 0.4,14.6" />
          <path d="M8 6v4M8 12.4v.2" />
        </>
      )}
      {status === "healthy" && (
        <>
          <circle cx="8" cy="8" r="7.5" />
          <path d="M4.6 8.3l2.4 2.4 4.4-5" />
        </>
      )}
      {status === "mended" && (
        <>
          <circle class="hollow" cx="8" cy="8" r="6.8" />
          <path class="thin" d="M4.6 8.3l2.4 2.4 4.4-5" />
        </>
      )}
      {status === "empty" && <circle class="hollow" cx="8" cy="8" r="6.5" />}
    </svg>
  );
}
