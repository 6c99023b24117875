/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef PVN_TOOLS_JSON_TEXT_H
#define PVN_TOOLS_JSON_TEXT_H

#include <jansson.h>

/* The text of an object's member; "" if it is no text or missing. */
static inline const char *pvn_json_text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    return s ? s : "";
}

#endif
