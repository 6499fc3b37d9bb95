// Runs that never were: values as functions of kind, row and step, answered as http_api.md says.

const KINDS = ["weight", "gradient", "applied", "activation", "update", "input"];
const NAN = 1, POS_INF = 2, NEG_INF = 4, MEASURED = 16;

export const codeOf = (value) => (value === 0 ? 1 : Math.max(16, Math.min(65535, 16 + Math.round(72 * (Math.log2(value) + 451)))));

const noise = (a, b) => {
  let x = (a * 374761393 + b * 668265263) | 0;
  x = Math.imul(x ^ (x >>> 13), 1274126177);
  return ((x ^ (x >>> 16)) >>> 0) / 4294967296;
};

function layers(names) {
  const kinds = Object.fromEntries(KINDS.map((kind) => [kind, []]));
  names.forEach(([layer, layer_class, variables], order) => {
    const add = (kind, leaf, shape) => {
      const name = leaf === "" ? layer : `${layer}/${leaf}`;
      kinds[kind].push({ row: kinds[kind].length, tag: `${kind}/${name}`, name, layer, layer_class, dtype: "float32", shape, order, trainable: kind === "weight" });
    };
    for (const [leaf, shape] of variables) for (const kind of ["weight", "gradient", "update"]) add(kind, leaf, shape);
    add("activation", "output", [-1, 64]);
  });
  kinds.input.push({ row: 0, tag: "input/x", name: "x", layer: "", layer_class: "", dtype: "float32", shape: [-1, 28, 28, 1], order: 0, trainable: false });
  return kinds;
}

const dense = (name, n = 64, m = 64) => [name, "Dense", [["kernel", [n, m]], ["bias", [m]]]];
const conv = (name, n, m) => [name, "Conv2D", [["kernel", [3, 3, n, m]], ["bias", [m]]]];

const CNN = layers([conv("conv2d", 1, 32), conv("conv2d_1", 32, 32), ["batch_normalization", "BatchNormalization", [["gamma", [32]], ["beta", [32]]]], conv("conv2d_2", 32, 64), conv("conv2d_3", 64, 64), dense("dense", 1024, 128), dense("classifier/logits", 128, 10)]);
const DEEP = layers(Array.from({ length: 30 }, (_, i) => dense(i === 0 ? "dense" : `dense_${i}`)));
const VAE = layers(["encoder/enc_1", "encoder/enc_2", "encoder/z_mean", "encoder/z_log_var", "decoder/dec_1", "decoder/dec_out"].map((name) => dense(name)));
const HUGE = layers(Array.from({ length: 1000 }, (_, i) => [`encoder/block_${Math.floor(i / 8)}/attention_head_${i % 8}/projection`, "Dense", [["kernel", [512, 64]]]]));

/** @type {Record<string, any>} */
const shapes = {
  blowup: (kind, row, step) => {
    const growth = step < 1900 ? 1 : 2 ** ((step - 1900) * (kind === "weight" ? 0.6 : 1.6));
    const base = { weight: 3, gradient: 0.05, activation: 12, update: 0.002, input: 20 }[kind];
    const value = base * (1 + 0.5 * noise(row, step) + row / 8) * (kind === "gradient" ? Math.exp(-step / 900) + 0.1 : 1) * growth;
    const onset = { gradient: 1962, update: 1962, weight: 1962, activation: 1963, input: 1e9 }[kind] + (kind === "gradient" && row < 8 ? 0 : kind === "gradient" && row > 9 ? 1 : 0);
    if (kind === "gradient" && step === 1961 && row === 8) return { state: POS_INF, value };
    if (step >= onset) return { state: kind === "activation" && row % 3 === 1 ? POS_INF : NAN };
    if (kind === "activation" && step >= 700 && step < 900 && row === 2) return { value: 0 };
    if (kind === "activation" && step % 10 && row === 5) return null;
    return { value };
  },
  healthy: (kind, row, step) => ({ value: { weight: 3, gradient: 0.05, activation: 12, update: 0.002, input: 20 }[kind] * (1 + 0.3 * noise(row, step) + row / 10) * Math.exp(-step / 4000) }),
  flash: (kind, row, step) => {
    if (step === 412 && kind === "activation" && row === 3) return { state: POS_INF };
    if (step === 412 && (kind === "gradient" || kind === "update") && row > 5 && row < 9) return { state: NAN };
    if (step === 700 && kind === "activation" && row === 1) return { state: NEG_INF, value: 3 };
    return shapes.healthy(kind, row, step);
  },
  vanishing: (kind, row, step) => {
    const depth = 60 - row;
    if (kind === "gradient") return { value: 0.3 * 0.2 ** (depth / 2) * (0.8 + 0.4 * noise(row, step)) * Math.exp(-step / 300) };
    if (kind === "update") return { value: row < 20 ? 0 : 1e-3 * 0.3 ** (depth / 2) * (0.8 + 0.4 * noise(row, step)) };
    return shapes.healthy(kind, row, step);
  },
  huge: (kind, row, step) => {
    if (row === 333 && step === 51234) return { state: NAN };
    if (row === 700 && step >= 80000 && step < 80003) return { state: POS_INF };
    if (row === 901 && step === 12000) return { state: NEG_INF };
    return { value: 10 ** (-3 + 2 * Math.sin(row / 60) + Math.cos(step / 9000) + 0.3 * noise(row, step)) };
  },
};
const HUGE_EVENTS = [[333, 51234, 51234], [700, 80000, 80002], [901, 12000, 12000]];

const operand = { name: "gradients/conv2d_3/Relu:0", dtype: "float32", shape: [128, 7, 7, 64], min: -3.1e37, max: 2.2e38, nan: 0, inf: 0, zero: 40211 };
const incident = {
  first_step: 1961, last_step: null, recovered: false, detected_step: 1961,
  origin: { phase: "backward", layer: "conv2d_3", tensor: "conv2d_3/kernel", op_type: "Conv2DBackpropFilter", op_name: "gradient_tape/conv2d_3/Conv2DBackpropFilter", source: { file: "train.py", line: 34, function: "build", code: "x = layers.Conv2D(64, 3, activation='relu')(x)" }, replica: 0, samples: [3, 17], precision: "op", inputs: [operand], output: { nan: 0, pos_inf: 128, neg_inf: 0, size: 36864 } },
  spread: [["backward", "gradient/conv2d_3/kernel"], ["backward", "gradient/conv2d_2/kernel"], ["backward", "gradient/conv2d_2/bias"], ["update", "update/conv2d/kernel"], ["weights", "weight/conv2d/kernel"], ["forward", "activation/conv2d/output"], ["loss", "loss/loss"]].map(([phase, tensor], order) => ({ order, phase, tensor })),
  cause: { name: "growth_overflow", confidence: 0.93, evidence: ["The norm of every gradient doubled each 0.6 steps from step 1,900 on, over 98 octaves, until float32 overflowed.", "The update-to-weight ratio rose from 0.0007 to 210."] },
  other_causes: [{ name: "bad_learning_rate", confidence: 0.6, evidence: ["…"] }],
  remedies: [{ name: "lower_learning_rate", why: "Updates were 200 times larger than the weights they changed.", snippet: "optimizer = keras.optimizers.SGD(learning_rate=0.01)", trial: { outcome: "finite", steps: 64, control: "nonfinite", note: "" } }, { name: "clip_gradients", why: "Bounds a single step whatever the gradient is.", snippet: "optimizer = keras.optimizers.SGD(0.1, global_clipnorm=1.0)", trial: { outcome: "not_run" } }],
  capsule: "plugins/nanwatch/step_1961",
};

const now = Date.now() / 1000;
const START = now - 7200;

function run(name, shape, kinds, steps, more = {}) {
  return { name, shape, kinds, steps, status: "healthy", headline: "healthy: every value stayed finite", paragraphs: ["Every weight, gradient and activation was finite at all steps that were watched."], incidents: [], findings: [], notes: [], damage: [], ended: true, live: false, last_finite: steps - 1, ...more };
}

const blown = (name) => run(name, "blowup", CNN, 2000, {
  status: "incident", headline: "blew up at step 1,961: first in the gradient of conv2d_3/kernel", last_finite: 1960, incidents: [incident],
  paragraphs: ["Gradients grew without bound from step 1,900 on and overflowed float32 in the gradient of conv2d_3/kernel at step 1,961. One step later every weight was NaN; nothing recovered after that.", "The learning rate is the likeliest cause: updates were up to 210 times larger than the weights they changed. Lowering it to 0.01 kept the same 64 steps finite."],
  notes: [{ step: 0, kind: "start", text: "Keras fit, TensorFlow 2.21.0, full statistics every 10 steps" }, { step: 1000, kind: "restart", text: "A new process went on from step 1,000" }],
});

/** Scenarios by name; each is a logdir. */
export const scenarios = {
  blowup: { runs: [
    blown("cnn/lr=0.1"),
    run("cnn/lr=0.001", "healthy", CNN, 3000, { paragraphs: ["Every weight, gradient and activation was finite at all 3,000 steps."] }),
    run("deep_sigmoid", "vanishing", DEEP, 600, { status: "warning", headline: "gradients vanish: dense receives 1e-22 of what the last layer does", paragraphs: ["Each of the 30 sigmoid layers passes on about a fifth of its gradient."], findings: [{ rule: "vanishing_gradient", severity: "warning", tensor: "gradient/dense/kernel", first_step: 0, last_step: 599, evidence: ["The gradient norm falls by a factor of 0.2 per layer, from 0.3 in dense_29 to 8e-22 in dense."], remedies: [{ name: "use_activation_or_normalization", why: "Each layer passes on less than it gets." }] }] }),
    run("vae", "flash", VAE, 1200, { status: "incident", headline: "a NaN flashed by at step 412 and recovered: first in z_log_var/output", last_finite: 1199, paragraphs: ["exp overflowed in encoder/z_log_var at step 412; the update was skipped and training went on."], incidents: [{ ...incident, first_step: 412, last_step: 412, recovered: true, detected_step: 412, origin: { phase: "forward", layer: "encoder/z_log_var", tensor: "encoder/z_log_var/output", op_type: "Exp", op_name: "exp", source: { file: "vae.py", line: 51, function: "train_step", code: "kl = -0.5 * tf.reduce_sum(1 + log_var - tf.exp(log_var))" }, samples: [3], output: { nan: 0, pos_inf: 5, neg_inf: 0, size: 2048 } }, spread: [{ order: 0, phase: "forward", tensor: "activation/encoder/z_log_var/output" }, { order: 1, phase: "backward", tensor: "gradient/encoder/z_log_var/kernel" }], cause: { name: "exp_overflow", confidence: 0.9, evidence: ["log_var reached 91.7; exp overflows float32 above 88.7."] }, remedies: [] }] }),
    run("live", "healthy", CNN, 300, { ended: false, live: true, headline: "healthy so far: every value is finite" }),
    run("<img src=x onerror=alert(1)> & a/name/that/is/much/longer/than/any/list/could/ever/show", "healthy", VAE, 10, {}),
  ], damage: [] },
  huge: { runs: [run("huge", "huge", HUGE, 100000, { status: "incident", headline: "three tensors were not finite for a moment, first at step 12,000", paragraphs: ["A −Inf in the weights of block_112 at step 12,000, a NaN in block_41 at step 51,234 and a +Inf in block_87 at step 80,000; all recovered."], incidents: [[901, 12000], [333, 51234], [700, 80000]].map(([row, step]) => ({ ...incident, first_step: step, last_step: step, recovered: true, detected_step: step, origin: { ...incident.origin, phase: "weights", layer: HUGE.weight[row].layer, tensor: HUGE.weight[row].tag }, spread: [] })), notes: Array.from({ length: 3000 }, (_, i) => ({ step: i * 33, kind: "thinned", text: `segment ${i} was rewritten more thinly` })) })], damage: [] },
  broken: { runs: [{ ...blown("torn"), damage: ["events.out.tfevents.17961.nanwatch: 412 bytes at offset 81,920 fail their checksum; skipped to the next whole record (steps 512–767 are missing)", "events.out.tfevents.17962.nanwatch: ends in the middle of a record"] }], damage: ["old/events.out.tfevents.1.nanwatch: written by a newer format (version 9); upgrade tb_nanwatch to read it"] },
  empty: { runs: [], damage: [] },
  loading: { runs: [], damage: [], loading: true },
};

export const stepsOf = (r) => (r.live ? r.steps + Math.floor((Date.now() / 1000 - now) * 3) : r.steps);

export function summary(r) {
  const steps = stepsOf(r);
  return { run: r.name, status: r.status, headline: r.headline, first_step: 0, last_step: steps - 1, steps, last_finite_step: r.live ? steps - 1 : r.last_finite, incidents: r.incidents.length, findings: r.findings.length, tensors: KINDS.reduce((n, k) => n + r.kinds[k].length, 0), attempts: [{ attempt: 0, first_step: 0, last_step: steps - 1, wall_time: START }], started: START, updated: r.live ? Date.now() / 1000 : now - 600, ended: r.ended, version: `v${steps}` };
}

export const report = (r) => ({ run: r.name, status: r.status, steps: stepsOf(r), last_finite_step: r.last_finite, headline: r.headline.charAt(0).toUpperCase() + r.headline.slice(1), paragraphs: r.paragraphs, incidents: r.incidents, findings: r.findings, notes: r.notes, damage: r.damage, about: { entry_point: "keras_fit", every: 10, host: "h", versions: { tensorflow: "2.21.0", keras: "3.15.0" }, options: {} } });

export const tables = (r) => ({ version: `v${stepsOf(r)}`, steps: { first: 0, last: stepsOf(r) - 1, count: stepsOf(r) }, kinds: r.kinds, scalars: [{ tag: "loss/loss", kind: "loss", name: "loss" }, { tag: "metric/accuracy", kind: "metric", name: "accuracy" }] });

export function tile(r, kind, level, index, [from, to]) {
  const n = to - from, width = 2 ** level, first = index * 256 * width;
  const body = Buffer.alloc(24 + 5 * n * 256);
  body.write("NWT1", 0, "latin1");
  body.writeUInt32LE(level, 4); body.writeUInt32LE(n, 8); body.writeUInt32LE(256, 12); body.writeBigInt64LE(BigInt(first), 16);
  const steps = stepsOf(r), stride = r.shape === "huge" ? Math.max(1, width / 4) : 1;
  for (let i = 0; i < n; i++) for (let b = 0; b < 256; b++) {
    let low = 65536, high = 0, state = 0, seen = 0;
    const start = first + b * width, end = Math.min(start + width, steps);
    const look = (s) => {
      const v = shapes[r.shape](kind, from + i, s);
      if (v === null) return;
      seen++;
      state |= v.state ?? 0;
      if (v.value !== undefined) { const c = codeOf(v.value); low = Math.min(low, c); high = Math.max(high, c); }
    };
    for (let s = start; s < end; s += stride) look(s);
    if (r.shape === "huge") for (const [row, a, z] of HUGE_EVENTS) if (row === from + i && a < end && z >= start) look(a);
    const at = i * 256 + b;
    body.writeUInt16LE(high ? low : 0, 24 + 2 * at);
    body.writeUInt16LE(high, 24 + 2 * (n * 256 + at));
    body[24 + 4 * n * 256 + at] = state | (seen > 0 && seen >= (end - start) / stride ? MEASURED : 0);
  }
  return body;
}

export function series(r, tag, stat, first, last, bins) {
  const [kind, name] = [tag.split("/")[0], tag.split("/").slice(1).join("/")];
  const steps = stepsOf(r);
  const row = KINDS.includes(kind) ? r.kinds[kind].findIndex((t) => t.tag === tag) : 0;
  const at = (s) => {
    if (kind === "loss" || kind === "metric") {
      const v = shapes[r.shape]("gradient", 3, s);
      return v?.value === undefined ? { state: v?.state ?? 0 } : { value: kind === "metric" ? 1 - Math.exp(-s / 500) : 0.3 + 2 * Math.exp(-s / 400) + v.value };
    }
    const v = shapes[r.shape](kind, row, s);
    if (v === null) return null;
    if (stat === "zero_share" && v.value !== undefined) return { value: noise(row, s) };
    if (stat === "headroom" && v.value !== undefined) return { value: 128 - Math.log2(v.value) };
    if (stat === "update_ratio") return kind === "weight" || kind === "update" ? v : null;
    return v;
  };
  const from = Math.max(0, first), to = Math.min(last, steps - 1);
  const per = Math.max(1, Math.ceil((to - from + 1) / bins));
  const points = [];
  for (let s = Math.floor(from / per) * per; s <= to; s += per) {
    let low = Infinity, high = -Infinity, state = 0, seen = false;
    for (let t = s; t < s + per && t < steps; t++) { const v = at(t); if (!v) continue; seen = true; state |= v.state ?? 0; if (v.value !== undefined) { low = Math.min(low, v.value); high = Math.max(high, v.value); } }
    if (seen) points.push([s, low === Infinity ? NaN : low, high === -Infinity ? NaN : high, state | MEASURED]);
  }
  const n = points.length, body = Buffer.alloc(16 + 25 * n);
  body.write("NWS1", 0, "latin1"); body.writeUInt32LE(n, 4); body.writeUInt32LE(per, 8);
  points.forEach(([s, low, high, state], i) => { body.writeDoubleLE(s, 16 + 8 * i); body.writeDoubleLE(low, 16 + 8 * (n + i)); body.writeDoubleLE(high, 16 + 8 * (2 * n + i)); body[16 + 24 * n + i] = state; });
  return body;
}

export function cell(r, tag, step) {
  const kind = tag.split("/")[0];
  const row = (r.kinds[kind] ?? []).findIndex((t) => t.tag === tag);
  const v = shapes[r.shape](kind, row, step) ?? {};
  const state = v.state ?? 0;
  return { tag, step, measured_step: step, wall_time: START + step, iteration: step, norm: state & NAN ? "NaN" : state & POS_INF ? "Infinity" : v.value ?? null, state: [state & NAN ? "nan" : "", state & POS_INF ? "pos_inf" : "", state & NEG_INF ? "neg_inf" : ""].filter(Boolean), full: { step: step - (step % 10), max_abs: 3.1, mean: 0.01, zero_share: 0.5, subnormal_share: 0, headroom_octaves: 126.4, update_ratio: 0.001 }, counts: state ? { step, nan: 128, pos_inf: 0, neg_inf: 0, size: 4096 } : null };
}
