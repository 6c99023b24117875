/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The variables of NCCL's configuration files as facts, with what may surprise about them. */
#include "config.h"
#include "topo/tool/check/facts.h"

#include <jansson.h>
#include <string.h>

#include "plugin/tools/nccl_conf.h"
#include "topo/tool/base/json.h"

/* True for a name that is meant for NCCL, which never reads it in this form. */
static bool is_misspelt(const char *name)
{
    return strcasestr(name, "NCCL_") &&
           (strncmp(name, "NCCL_", 5) != 0 ||
            name[strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")] != '\0');
}

/* Parts of the value that shells and other readers would remove but NCCL keeps, after the word
 * "NCCL"; NULL if there is none. */
static const char *surprise_of(const char *value)
{
    size_t len = strlen(value);
    const char *hash = strchr(value, '#');
    if (len == 0)
        return NULL;
    if (value[len - 1] == '\r')
        return "before 2.30 takes the CR at its end (a DOS file)";
    if (hash && (hash == value || hash[-1] == ' ' || hash[-1] == '\t'))
        return "takes the # and what follows it";
    if (strchr("\"'", value[0]))
        return "takes the quotes";
    if (strchr(" \t", value[0]) || strchr(" \t", value[len - 1]))
        return "takes the spaces around it";
    return NULL;
}

static void add_fact(json_t *facts, const char *name, const char *value)
{
    char subject[PVN_NCCL_CONF_KEPT + 3], text[PVN_NCCL_CONF_KEPT + 200];
    const char *more;
    snprintf(subject, sizeof(subject), is_misspelt(name) ? "\"%s\"" : "%s", name);
    if (is_misspelt(name))
        snprintf(text, sizeof(text),
                 "%s (without effect: spaces, quotes and case are part of this name)", value);
    else if ((more = surprise_of(value)))
        snprintf(text, sizeof(text), "%s (NCCL %s as part of the value)", value, more);
    else
        snprintf(text, sizeof(text), "%s", value[0] ? value : "(empty)");
    json_array_append_new(facts, json_pack("{s:s, s:o, s:o}", "fact", "nccl.conf", "subject",
                                           json_text(subject), "value", json_text(text)));
}

/* The list that gets the facts, and the names that are set already, of which NCCL takes no other value. */
struct facts {
    json_t *to, *set;
};

static void take(void *arg, const char *path, const char *name, const char *value)
{
    struct facts *f = arg;
    (void)path;
    if (!json_object_get(f->set, name) && json_object_set_new(f->set, name, json_true()) == 0)
        add_fact(f->to, name, value);
}

void facts_nccl_conf(json_t *facts, const json_t *environment, const char *file, const char *home)
{
    struct facts f = {facts, json_copy((json_t *)environment)};
    pvn_nccl_conf_read(file, home, take, &f);
    json_decref(f.set);
}
