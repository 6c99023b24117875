/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tools/nccl_conf.h"

#include <ctype.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>

#include "base/err.h"

enum { KEPT = PVN_NCCL_CONF_KEPT };

/* A variable that this process has from a file. */
struct taken {
    struct taken *next;
    char name[KEPT + 1], path[KEPT + 1];
};

static struct taken *taken, **end = &taken;

static void take_line(const char *path, const char *line, pvn_nccl_conf_use *use, void *arg)
{
    char name[KEPT + 1], value[KEPT + 1];
    const char *equals = strchr(line, '=');

    if (line[0] == '#' || !equals || equals == line)
        return;
    snprintf(name, sizeof(name), "%.*s", (int)(equals - line < KEPT ? equals - line : KEPT), line);
    snprintf(value, sizeof(value), "%.*s", KEPT, equals + 1);
    use(arg, path, name, value);
}

static void read_file(const char *path, pvn_nccl_conf_use *use, void *arg)
{
    FILE *f = fopen(path, "re");
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;

    while (f && (n = getline(&line, &cap, f)) > 0) {
        if (line[n - 1] == '\n')
            line[n - 1] = '\0';
        take_line(path, line, use, arg);
    }
    free(line);
    if (f)
        fclose(f);
}

static bool is_set(const char *value)
{
    return value && value[0];
}

void pvn_nccl_conf_read(const char *file, const char *home, pvn_nccl_conf_use *use, void *arg)
{
    char path[KEPT + 1];

    snprintf(path, sizeof(path), "%s/.nccl.conf", home ? home : "");
    if (is_set(file))
        read_file(file, use, arg);
    else if (home)
        read_file(path, use, arg);
    read_file("/etc/nccl.conf", use, arg);
}

/* NCCL takes other variables, such as PATH, too, which no command reads. */
static void put_into_environment(void *arg, const char *path, const char *name, const char *value)
{
    char kept[KEPT + 1];
    struct taken *t;

    (void)arg;
    snprintf(kept, sizeof(kept), "%s", value);
    if (kept[0] && kept[strlen(kept) - 1] == '\r')
        kept[strlen(kept) - 1] = '\0';
    if (strncmp(name, "NCCL_", 5) != 0 || getenv(name) || !(t = calloc(1, sizeof(*t))))
        return;
    snprintf(t->name, sizeof(t->name), "%s", name);
    snprintf(t->path, sizeof(t->path), "%s", path);
    if (setenv(name, kept, 0) != 0) {
        free(t);
        return;
    }
    *end = t;
    end = &t->next;
}

void pvn_nccl_conf_take(void)
{
    pvn_nccl_conf_read(getenv("NCCL_CONF_FILE"), getenv("HOME"), put_into_environment, NULL);
}

bool pvn_nccl_conf_has(const char *entry)
{
    for (const struct taken *t = taken; t; t = t->next) {
        size_t len = strlen(t->name);

        if (strncmp(entry, t->name, len) == 0 && entry[len] == '=')
            return true;
    }
    return false;
}

const char *pvn_nccl_conf_taken(char *out, size_t cap)
{
    const char *path = "";

    out[0] = '\0';
    for (const struct taken *t = taken; t; t = t->next) {
        if (strcmp(path, t->path) == 0)
            pvn_str_append(out, cap, ", %s", t->name);
        else
            pvn_str_append(out, cap, "%s%s sets %s", path[0] ? "; " : "", t->path, t->name);
        path = t->path;
    }
    for (char *c = out; *c; c++)
        if (iscntrl((unsigned char)*c))
            *c = '?';
    return out;
}

const char *pvn_nccl_conf_homes(const char *file, const char *home, uid_t user, char *out,
                                size_t cap)
{
    const struct passwd *pw = is_set(file) ? NULL : getpwuid(user);
    char before[KEPT + 1], after[KEPT + 1];
    struct stat b, a;
    bool is_before, is_after;

    out[0] = '\0';
    if (!pw || !pw->pw_dir || (home && strcmp(home, pw->pw_dir) == 0))
        return out;
    snprintf(before, sizeof(before), "%s/.nccl.conf", pw->pw_dir);
    snprintf(after, sizeof(after), "%s/.nccl.conf", home ? home : "");
    is_before = stat(before, &b) == 0;
    is_after = home && stat(after, &a) == 0;
    if ((is_before || is_after) &&
        !(is_before && is_after && b.st_dev == a.st_dev && b.st_ino == a.st_ino))
        pvn_str_append(out, cap,
                       "NCCL before 2.30 reads %s (the home directory of the password database), "
                       "from 2.30 on %s (HOME)",
                       before, home ? after : "none");
    return out;
}

void pvn_nccl_conf_say(const char *tool)
{
    char text[1024];

    if (pvn_nccl_conf_taken(text, sizeof(text))[0])
        fprintf(stderr, "%s: %s, as for NCCL\n", tool, text);
    if (pvn_nccl_conf_homes(getenv("NCCL_CONF_FILE"), getenv("HOME"), getuid(), text,
                            sizeof(text))[0])
        fprintf(stderr, "%s: %s; NCCL_CONF_FILE names a file for both\n", tool, text);
}
