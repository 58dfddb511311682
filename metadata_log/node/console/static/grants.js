// What changes access: rules, passwords of SCRAM users, and quotas; each is shown first, with its records.
import { proposed, trial } from "./changes.js";
import { field, h, notice } from "./dom.js";
import { OPERATIONS, TYPES, low } from "./rules.js";

const KEYS = ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate"];
const DEFAULT = "<default>";
const DIGESTS = { "SCRAM-SHA-256": ["SHA-256", 256], "SCRAM-SHA-512": ["SHA-512", 512] };
const ITERATIONS = 4096;
const SALT_BYTES = 24;

const options = (values, chosen) => values.map((value) => h("option", { value, selected: value === chosen }, low(value)));
const typed = (value = "", more = {}) => h("input", { value, autocomplete: "off", spellcheck: "false", ...more });

export function createAcls(context) {
  const principal = typed("", { required: true, placeholder: "User:alice" }), operation = h("select", { multiple: true, size: 5, required: true }, options(OPERATIONS, "READ")), type = h("select", {}, options(TYPES, "TOPIC"));
  const name = typed("", { required: true, placeholder: "orders" }), pattern = h("select", {}, [["LITERAL", "this name"], ["PREFIXED", "names that begin so"]].map(([value, text]) => h("option", { value }, text))), host = typed("*", { required: true });
  const permission = h("select", {}, [["ALLOW", "allow"], ["DENY", "deny"]].map(([value, text]) => h("option", { value }, text)));
  type.addEventListener("input", () => { if (type.value === "CLUSTER") name.value = "kafka-cluster"; });
  const body = () => ({ acls: [...operation.selectedOptions].map((one) => ({ resource_type: type.value, resource_name: name.value, pattern_type: pattern.value, principal: principal.value, host: host.value, operation: one.value, permission_type: permission.value })) });
  proposed(context, {
    title: "Create a rule",
    fields: [field("principal", principal, "User:* is everybody"), field("permission", permission, "what is denied counts first"), field("type", type), field("resource", name, "* is all of the type"), field("pattern", pattern), field("operations", operation), field("host", host, "a numeric address; * is any")],
    foresee: () => trial("POST", "/v1/acls?validate_only=true", body()),
    request: () => ["POST", "/v1/acls", body()],
  });
}

/** Delete what a filter means, in steps of what one batch holds. */
export function deleteAcls(context, meant, title) {
  const body = { filters: [meant], in_steps: true };
  proposed(context, {
    title,
    danger: true,
    foresee: () => trial("POST", "/v1/acls/delete?validate_only=true", body),
    request: () => ["POST", "/v1/acls/delete", body],
  });
}

// --- users

export function setPassword(context, one = null) {
  const user = typed(one?.user, { required: true, readonly: one !== null }), mechanism = h("select", {}, Object.keys(DIGESTS).map((name) => h("option", { value: name }, name)));
  const iterations = h("input", { type: "number", min: ITERATIONS, max: 16384, value: ITERATIONS, required: true }), password = typed("", { type: "password", required: true, autocomplete: "new-password" }), again = typed("", { type: "password", required: true, autocomplete: "new-password" });
  let body = null;
  proposed(context, {
    title: one ? `Set the password of ${one.user}` : "Set a password",
    fields: [field("user", user, "without User: before it"), field("mechanism", mechanism), field("iterations", iterations), field("password", password, "hashed here; no node gets to know it"), field("once more", again)],
    foresee: async () => {
      if (!globalThis.crypto?.subtle) throw new Error("This page came without TLS, so the browser hashes no password here: use `metaquorum users set-scram`, or a console with TLS.");
      if (password.value !== again.value) throw new Error("The two passwords differ.");
      const [digest, bits] = DIGESTS[mechanism.value], salt = saltOf(crypto.getRandomValues(new Uint8Array(SALT_BYTES)));
      const key = await crypto.subtle.importKey("raw", new TextEncoder().encode(password.value), "PBKDF2", false, ["deriveBits"]);
      const hashed = await crypto.subtle.deriveBits({ name: "PBKDF2", hash: digest, salt, iterations: Number(iterations.value) }, key, bits);
      body = { upsertions: [{ user: user.value, mechanism: mechanism.value, iterations: Number(iterations.value), salt: base64(salt), salted_password: base64(new Uint8Array(hashed)) }] };
      return [one?.credentials.some((each) => each.mechanism === mechanism.value) ? notice("warn", "The password before it counts no longer.") : null, await trial("PATCH", "/v1/users?validate_only=true", body)];
    },
    request: () => ["PATCH", "/v1/users", body],
  });
}

/** Letters and digits, as Kafka's clients draw a salt. */
const saltOf = (drawn) => new TextEncoder().encode([...drawn].map((one) => (one % 36).toString(36)).join(""));
const base64 = (drawn) => btoa(String.fromCharCode(...drawn));

export function deleteUser(context, one) {
  const which = h("select", {}, one.credentials.map((each) => h("option", { value: each.mechanism }, each.mechanism)));
  const body = () => ({ deletions: [{ user: one.user, mechanism: which.value }] });
  proposed(context, {
    title: `Delete credentials of ${one.user}`,
    danger: true,
    fields: [field("mechanism", which)],
    foresee: async () => [notice("warn", "No log gives them back. A connection that used them may do nothing more."), await trial("PATCH", "/v1/users?validate_only=true", body())],
    request: () => ["PATCH", "/v1/users", body()],
  });
}

// --- quotas

const WORDS = { user: "user", "client-id": "client_id", ip: "ip" };
export const entityText = (parts) => parts.map((part) => `${low(part.entity_type)} ${part.entity_name ?? DEFAULT}`).join(", ");
const partsOf = (entity) => Object.fromEntries(entity.map((part) => [WORDS[part.entity_type], part.entity_name]));

/** Set quotas of an entity, or remove those that it has. */
export function alterQuotas(context, one = null, removes = false) {
  const named = one ? partsOf(one.entity) : {}, inputs = Object.fromEntries(["user", "client_id", "ip"].map((word) => [word, typed(word in named ? named[word] ?? DEFAULT : "", { readonly: one !== null })]));
  const key = h("select", {}, KEYS.map((name) => h("option", { value: name }, name))), value = typed("", { inputmode: "decimal", placeholder: "empty: none" });
  key.addEventListener("input", () => { value.value = one?.quotas[key.value] ?? ""; });
  if (one) { key.value = Object.keys(one.quotas)[0]; value.value = one.quotas[key.value]; }
  const entity = () => (one ? named : Object.fromEntries(Object.entries(inputs).filter(([, input]) => input.value).map(([word, input]) => [word, input.value === DEFAULT ? null : input.value])));
  const body = () => ({ entries: [{ ...entity(), ...(removes ? { unset: Object.keys(one.quotas) } : value.value.trim() === "" ? { unset: [key.value] } : { set: { [key.value]: Number(value.value) } }) }] });
  const whose = one ? entityText(one.entity) : "";
  proposed(context, {
    title: removes ? `Remove the quotas of ${whose}` : one ? `Change a quota of ${whose}` : "Set a quota",
    danger: removes,
    fields: removes ? [] : [...(one ? [] : [field("user", inputs.user, `${DEFAULT}: each without a quota of its own`), field("client id", inputs.client_id, "alone, or with a user"), field("address", inputs.ip, "alone")]), field("quota", key), field("value", value)],
    foresee: () => {
      if (!removes && Number.isNaN(Number(value.value))) throw new Error(`${value.value} is no number`);
      return trial("PATCH", "/v1/quotas?validate_only=true", body());
    },
    request: () => ["PATCH", "/v1/quotas", body()],
  });
}
