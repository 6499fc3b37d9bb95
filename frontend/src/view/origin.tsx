/** What made the first bad value: one line for the top of the page, and the whole of it beside the heatmap. */
import { formatCounts, words } from "../model/format";
import { neighbourhoodOf } from "../model/neighbourhood";
import { baseOf, folderOf, howKnown, isLibrary, lineOf, linesOf, makerOf, operandRow, samplesText } from "../model/origin";
import type { Incident, Origin, Source } from "../model/types";
import { Graph } from "./graph";
import { sure } from "./remedies";

/** "`Sqrt` gradient at train.py:34", the line's text, and the cause: each where the headline does not say it already. */
export function Lead({ incident, headline }: { readonly incident: Incident; readonly headline: string }) {
  const { origin, cause, replay } = incident;
  // An op that no line of the user's own called, as a loss that Keras computes: the line that started the training.
  const inside = origin.source !== null && origin.source !== undefined && isLibrary(origin.source.file);
  const place = inside ? replay?.library : origin.source;
  const line = lineOf(place);
  const code = inside ? "" : (origin.source?.code ?? "");
  const said = line !== "" && headline.includes(line);
  const guessed = cause && cause.name !== "none" && !headline.includes("because of");
  if (!makerOf(incident)) return null;
  return (
    <div class="lead">
      {!said && (
        <p>
          <Made incident={incident} />
          {line !== "" && (
            <>
              {inside ? ", called from " : " at "}
              <code class="at" title={place?.file}>{line}</code>
            </>
          )}
        </p>
      )}
      {code !== "" && (
        <p>
          <code class="written">{code}</code>
        </p>
      )}
      {incident.lost && <p class="evidence">{incident.lost}</p>}
      {guessed && (
        <p>
          <b class="sentence">{words(cause.name)}</b> <span class="quiet">{sure(cause)}</span>
        </p>
      )}
    </div>
  );
}

function Made({ incident }: { readonly incident: Incident }) {
  const maker = makerOf(incident);
  if (!maker) return null;
  return maker.gradientOf === "" ? <code class="op">{maker.op}</code> : (
    <>
      <code class="op" title={maker.op}>{maker.gradientOf}</code> gradient
    </>
  );
}

/** The line, the op, what went into it, and which samples. */
export function Where({ incident }: { readonly incident: Incident }) {
  const { origin } = incident;
  const maker = makerOf(incident);
  const facts = [samplesText(origin), typeof origin.replica === "number" && origin.replica >= 0 ? `replica ${origin.replica}` : ""].filter((part) => part !== "");
  const { own, library } = linesOf(incident);
  if (!maker && !own && facts.length === 0) return null;
  return (
    <section>
      <h3>Where</h3>
      {own && <Line source={own} />}
      {library && (
        <p class="quiet path">
          inside the library: <code>{library.function}</code>, <Path file={library.file} line={library.line} />
        </p>
      )}
      {maker && (
        <p>
          <code class="op">{maker.op}</code>
          {maker.gradientOf !== "" && (
            <>
              , gradient of <code>{maker.gradientOf}</code>
            </>
          )}
          {origin.layer && (
            <>
              {" in layer "}
              <b class="tensor">{origin.layer}</b>
            </>
          )}
        </p>
      )}
      {maker && <Operands origin={origin} />}
      {facts.map((text) => (
        <p key={text} class="evidence">{text}</p>
      ))}
    </section>
  );
}

/** The ops around it, and how all this is known. */
export function Around({ incident }: { readonly incident: Incident }) {
  const around = neighbourhoodOf(incident.replay?.graph);
  const known = howKnown(incident);
  if (!around && known === "" && !incident.capsule) return null;
  return (
    <section>
      <h3>{around ? "The ops around it" : known !== "" ? "How this is known" : "The step itself"}</h3>
      {around && <Graph around={around} />}
      {known !== "" && <p class="quiet">{known}</p>}
      {incident.capsule && (
        <p class="quiet path">
          Kept in <code>{incident.capsule}</code>
        </p>
      )}
    </section>
  );
}

function Line({ source }: { readonly source: Source }) {
  if (source.file === "") return null;
  return (
    <div class="source">
      <p class="path">
        <Path file={source.file} line={source.line} />
        {source.function !== "" && (
          <>
            <span class="quiet"> in </span>
            <code>{source.function}</code>
          </>
        )}
      </p>
      {source.code !== "" && <pre>{source.code}</pre>}
    </div>
  );
}

function Path({ file, line }: { readonly file: string; readonly line: number }) {
  return (
    <code title={file}>
      <span class="quiet">{folderOf(file)}</span>
      {baseOf(file)}
      {line > 0 && `:${line}`}
    </code>
  );
}

/** The op's inputs, a row each, and what came out. */
function Operands({ origin }: { readonly origin: Origin }) {
  const inputs = (origin.inputs ?? []).filter(({ dtype }) => dtype !== "resource").map(operandRow);
  const output = formatCounts(origin.output);
  if (inputs.length === 0) return null;
  return (
    <div class="scrolls">
    <table class="operands">
      <thead>
        <tr>
          <th scope="col">Input</th>
          <th scope="col">Range</th>
          <th scope="col">Values</th>
        </tr>
      </thead>
      <tbody>
        {inputs.map((input, index) => (
          <tr key={index} class={input.bad ? "bad" : undefined}>
            <th scope="row">
              <code>{input.name}</code>
              <span class="quiet">{input.type}</span>
            </th>
            <td>{input.range}</td>
            <td>
              {input.counts.map(({ text, bad }) => (
                <span key={text} class={bad ? "loud" : undefined}>
                  {text}
                </span>
              ))}
            </td>
          </tr>
        ))}
      </tbody>
      {output !== "" && (
        <tfoot>
          <tr>
            <th scope="row">Output</th>
            <td colSpan={2} class="loud">
              {output}
            </td>
          </tr>
        </tfoot>
      )}
    </table>
    </div>
  );
}
