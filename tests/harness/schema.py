# SPDX-License-Identifier: MIT
# schema.py - is each line of stdin what a JSON Schema says, and nothing more?
#
#   schema.py SCHEMA LINES
#
# The few words of JSON Schema that ours uses, in a page, so that nothing has to be installed; if
# python3-jsonschema is there it has to agree. A field that the schema does not name is refused:
# what is printed has to be described.
import json
import re
import sys

TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool,
         "null": type(None)}
KNOWN = {"$schema", "title", "description", "$defs", "$ref", "type", "enum", "const", "pattern",
         "minimum", "minLength", "maxItems", "items", "properties", "required",
         "dependentRequired", "oneOf", "anyOf"}


def is_type(value, name):
    return isinstance(value, TYPES[name]) and (name != "integer" or not isinstance(value, bool))


def errors(root, s, v, at):
    unknown = set(s) - KNOWN
    if unknown:
        raise SystemExit("schema.py does not know %s" % unknown)
    if "$ref" in s:
        yield from errors(root, root["$defs"][s["$ref"].rsplit("/", 1)[1]], v, at)
    types = s.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(is_type(v, t) for t in types):
        yield "%s: %r is no %s" % (at, v, types)
        return
    if "enum" in s and v not in s["enum"]:
        yield "%s: %r is none of %s" % (at, v, s["enum"])
    if "const" in s and v != s["const"]:
        yield "%s: %r is not %r" % (at, v, s["const"])
    if isinstance(v, str) and not re.search(s.get("pattern", ""), v):
        yield "%s: %r does not match %s" % (at, v, s["pattern"])
    if isinstance(v, str) and len(v) < s.get("minLength", 0):
        yield "%s: %r is too short" % (at, v)
    if isinstance(v, int) and v < s.get("minimum", v):
        yield "%s: %r is too small" % (at, v)
    if isinstance(v, list):
        if len(v) > s.get("maxItems", len(v)):
            yield "%s: %d items" % (at, len(v))
        for i, item in enumerate(v):
            yield from errors(root, s.get("items", {}), item, "%s[%d]" % (at, i))
    if isinstance(v, dict) and "properties" in s:
        for name in s.get("required", []):
            if name not in v:
                yield "%s: no %s" % (at, name)
        for name, others in s.get("dependentRequired", {}).items():
            if name in v and not set(others) <= set(v):
                yield "%s: %s without %s" % (at, name, others)
        for name, value in v.items():
            if name not in s["properties"]:
                yield "%s: %s is not described" % (at, name)
            else:
                yield from errors(root, s["properties"][name], value, at + "." + name)
    for word in ("oneOf", "anyOf"):
        if word not in s:
            continue
        tries = [list(errors(root, one, v, at)) for one in s[word]]
        good = sum(not t for t in tries)
        if good == 0 or (word == "oneOf" and good > 1):
            yield "%s: %d of %d fit; the nearest: %s" % (at, good, len(tries),
                                                         min(tries, key=len)[:3])


def main():
    with open(sys.argv[1], encoding="ascii") as f:
        schema = json.load(f)
    values = [json.loads(line) for line in sys.stdin]
    for v in values:
        for e in errors(schema, schema, v, "$"):
            raise SystemExit(e)
    if len(values) != int(sys.argv[2]):
        raise SystemExit("%d values, not %s" % (len(values), sys.argv[2]))
    try:
        import jsonschema
    except ImportError:
        return
    jsonschema.Draft202012Validator.check_schema(schema)
    for v in values:
        jsonschema.validate(v, schema)


main()
