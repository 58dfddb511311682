// Access control lists in words: as the API names their kinds, and as records number them.

export const TYPES = ["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"];
export const OPERATIONS = ["ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT"];
const FIRST = 2; // 0 is unknown, 1 is any
const PREFIXED = 4, DENY = 2;

export const low = (word) => String(word).toLowerCase().replaceAll("_", " ");

/** A rule as a sentence. */
export const ruleText = (one) => `${one.principal} ${one.permission_type === "DENY" ? "may not" : "may"} ${low(one.operation)} ${low(one.resource_type)} ${one.resource_name}${one.pattern_type === "PREFIXED" ? " and what begins so" : ""} from host ${one.host}`;

/** The rule that a record says. */
export const ruleOf = (record) => ({ ...record, permission_type: record.permission_type === DENY ? "DENY" : "ALLOW", pattern_type: record.pattern_type === PREFIXED ? "PREFIXED" : "LITERAL", operation: OPERATIONS[record.operation - FIRST] ?? record.operation, resource_type: TYPES[record.resource_type - FIRST] ?? record.resource_type });
