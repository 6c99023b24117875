# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# usage: schema_check.py SCHEMA [DOCUMENT]...
# Checks a JSON schema against its metaschema, and documents against the schema, with the jsonschema
# package. Exit status: 0 if all are valid; 1 if one is not, with the reason on standard output; 77 if jsonschema is not
# installed or too old for the schema's dialect.
import json
import sys

try:
    from jsonschema import Draft202012Validator
except ImportError:
    sys.exit(77)

with open(sys.argv[1], encoding="utf-8") as f:
    schema = json.load(f)
bad = 0
for e in Draft202012Validator(Draft202012Validator.META_SCHEMA).iter_errors(schema):
    print(f"{sys.argv[1]}: {e.json_path}: {e.message}")
    bad = 1
if not bad:
    validator = Draft202012Validator(schema)
    for name in sys.argv[2:]:
        with open(name, encoding="utf-8") as f:
            document = json.load(f)
        for e in list(validator.iter_errors(document))[:10]:
            print(f"{name}: {e.json_path}: {e.message}")
            bad = 1
sys.exit(bad)
