/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* NCCL's configuration files by the rules of its own reader (src/misc/param.cc): the file
 * that NCCL_CONF_FILE names, else .nccl.conf in the user's home, then /etc/nccl.conf. Each line is
 * put into the environment unless the name is there already, so the first one counts. */
#include "config.h"
#include "topo/tool/check/facts.h"

#include <jansson.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topo/tool/base/json.h"

enum { KEPT = 1023 }; /* bytes of a name, and of a value */

/* True for a name that is meant for NCCL, which never reads it in this form. */
static bool is_misspelt(const char *name)
{
    return strcasestr(name, "NCCL_") &&
           (strncmp(name, "NCCL_", 5) != 0 ||
            name[strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")] != '\0');
}

/* Parts of the value that shells and other readers would remove but NCCL keeps; NULL if there is
 * none. */
static const char *surprise_of(const char *value)
{
    size_t len = strlen(value);
    const char *hash = strchr(value, '#');
    if (len == 0)
        return NULL;
    if (value[len - 1] == '\r')
        return "the CR at its end (a DOS file)";
    if (hash && (hash == value || hash[-1] == ' ' || hash[-1] == '\t'))
        return "the # and what follows it";
    if (strchr("\"'", value[0]))
        return "the quotes";
    if (strchr(" \t", value[0]) || strchr(" \t", value[len - 1]))
        return "the spaces around it";
    return NULL;
}

/* Takes a name and its value. */
typedef void use_fn(json_t *facts, const char *name, const char *value);

/* Variables that this process has from a file, by name. */
static json_t *taken;

static void put_into_environment(json_t *facts, const char *name, const char *value)
{
    (void)facts;
    /* NCCL also takes other variables, such as PATH; no command reads these. */
    if (strncmp(name, "NCCL_", 5) != 0 || getenv(name) || setenv(name, value, 0) != 0)
        return;
    if (!taken)
        taken = json_object();
    json_object_set_new(taken, name, json_true());
}

static void add_fact(json_t *facts, const char *name, const char *value)
{
    char subject[KEPT + 3], text[KEPT + 200];
    const char *more;
    snprintf(subject, sizeof(subject), is_misspelt(name) ? "\"%s\"" : "%s", name);
    if (is_misspelt(name))
        snprintf(text, sizeof(text),
                 "%s (without effect: spaces, quotes and case are part of this name)", value);
    else if ((more = surprise_of(value)))
        snprintf(text, sizeof(text), "%s (NCCL takes %s as part of the value)", value, more);
    else
        snprintf(text, sizeof(text), "%s", value[0] ? value : "(empty)");
    json_array_append_new(facts, json_pack("{s:s, s:o, s:o}", "fact", "nccl.conf", "subject",
                                           json_text(subject), "value", json_text(text)));
}

static void take_line(json_t *facts, json_t *set, const char *line, use_fn *use)
{
    char name[KEPT + 1], value[KEPT + 1];
    const char *equals = strchr(line, '=');
    if (line[0] == '#' || !equals || equals == line)
        return;
    snprintf(name, sizeof(name), "%.*s", (int)(equals - line < KEPT ? equals - line : KEPT), line);
    snprintf(value, sizeof(value), "%.*s", KEPT, equals + 1);
    if (!json_object_get(set, name) && json_object_set_new(set, name, json_true()) == 0)
        use(facts, name, value);
}

static void read_file(json_t *facts, json_t *set, const char *path, use_fn *use)
{
    FILE *f = fopen(path, "re");
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    while (f && (n = getline(&line, &cap, f)) > 0) {
        if (line[n - 1] == '\n')
            line[n - 1] = '\0';
        take_line(facts, set, line, use);
    }
    free(line);
    if (f)
        fclose(f);
}

/* set: names that are set already and stay unchanged. */
static void read_files(json_t *facts, json_t *set, const char *file, uid_t user, use_fn *use)
{
    char path[KEPT + 1];
    if (file && file[0]) {
        read_file(facts, set, file, use);
    } else {
        const struct passwd *pw = getpwuid(user); /* as NCCL does: HOME is not used */
        snprintf(path, sizeof(path), "%s/.nccl.conf", pw && pw->pw_dir ? pw->pw_dir : "");
        if (pw)
            read_file(facts, set, path, use);
    }
    read_file(facts, set, "/etc/nccl.conf", use);
}

void facts_nccl_conf(json_t *facts, const json_t *environment, const char *file, uid_t user)
{
    json_t *set = json_copy((json_t *)environment);
    read_files(facts, set, file, user, add_fact);
    json_decref(set);
}

void tool_take_nccl_conf(void)
{
    json_t *set = json_object();
    read_files(NULL, set, getenv("NCCL_CONF_FILE"), getuid(), put_into_environment);
    json_decref(set);
}

bool tool_is_from_nccl_conf(const char *entry)
{
    char name[KEPT + 1];
    size_t len = strcspn(entry, "=");
    snprintf(name, sizeof(name), "%.*s", (int)(len < KEPT ? len : KEPT), entry);
    return json_object_get(taken, name) != NULL;
}
