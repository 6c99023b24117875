/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat: checks whether the plugin could create its statistics file here. Follows
 * pvn_stats_open, but creates no file. */
#include "config.h"
#include "topo/tool/stat/stat_room.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <libgen.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "plugin/base/param.h"
#include "plugin/stats/stats_dir.h"
#include "topo/tool/base/json.h"

#define ELSEWHERE                                                                                  \
    "set NCCL_PVRDMA_STATS_DIR for the job, and for this command, to a directory in which the "    \
    "job's user may write; in a container, give it a /dev/shm of its own"
#define MORE_ROOM                                                                                  \
    "free some of it, or set NCCL_PVRDMA_STATS_DIR for the job, and for this command, to a "       \
    "directory with room; in a container, give it a larger /dev/shm (--shm-size)"

struct problem {
    char text[PATH_MAX + 64];
    const char *remedy;
};

__attribute__((format(printf, 3, 4))) static bool set(struct problem *p, const char *remedy,
                                                      const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(p->text, sizeof(p->text), format, ap);
    va_end(ap);
    p->remedy = remedy;
    return true;
}

/* True if no file can be created. at: the directory, or the one in which it would be created. */
static bool no_room(const char *at, struct problem *p)
{
    size_t need = sizeof(struct pvn_stat_head) + PVN_STAT_GROW * sizeof(struct pvn_stat_row);
    struct statvfs fs;
    if (statvfs(at, &fs) != 0)
        return set(p, ELSEWHERE, "%s: %s", at, strerror(errno));
    if (fs.f_flag & ST_RDONLY)
        return set(p, ELSEWHERE, "the file system of %s is read-only", at);
    if ((double)fs.f_bavail * (double)fs.f_frsize < (double)need ||
        (fs.f_files > 0 && fs.f_favail == 0))
        return set(p, MORE_ROOM, "the file system of %s is full", at);
    if (faccessat(AT_FDCWD, at, W_OK | X_OK, AT_EACCESS) != 0)
        return set(p, ELSEWHERE, "this user may not write in %s", at);
    return false;
}

/* True if the plugin refuses the directory itself, as pvn_stats_dir_open does. */
static bool refused(const char *dir, const struct stat *st, struct problem *p)
{
    if (!S_ISDIR(st->st_mode))
        return set(p, ELSEWHERE, "%s is no directory", dir);
    if (geteuid() != 0 && st->st_uid != geteuid() && st->st_uid != 0)
        return set(p, ELSEWHERE, "%s belongs to user %u", dir, (unsigned)st->st_uid);
    if ((st->st_mode & (S_IWGRP | S_IWOTH)) && !(st->st_mode & S_ISVTX))
        return set(p, ELSEWHERE, "%s is writable by others", dir);
    return false;
}

static bool look(const char *dir, struct problem *p)
{
    char parent[PATH_MAX];
    struct stat st;
    if (lstat(dir, &st) == 0)
        return refused(dir, &st, p) || no_room(dir, p);
    if (errno != ENOENT)
        return set(p, ELSEWHERE, "%s: %s", dir, strerror(errno));
    snprintf(parent, sizeof(parent), "%s", dir);
    return no_room(dirname(parent), p);
}

void stat_room_look(json_t *unreadable)
{
    struct pvn_err err = PVN_ERR_INIT;
    char dir[PVN_PARAM_STR_LEN + 32], user[24];
    const struct passwd *own = getpwuid(geteuid());
    const char *param;
    struct problem p;
    pvn_params_load(&err);
    param = pvn_params_get()->stats_dir;
    pvn_stats_dir_name(strcmp(param, "none") == 0 ? "" : param, geteuid(), dir, sizeof(dir));
    pvn_params_unload();
    snprintf(user, sizeof(user), "%u", (unsigned)geteuid());
    if (look(dir, &p))
        json_array_append_new(unreadable,
                              json_pack("{sosososs}", "directory", json_text(dir), "user",
                                        json_text(own ? own->pw_name : user), "problem",
                                        json_text(p.text), "remedy", p.remedy));
}

const json_t *stat_room_in(const json_t *unreadable)
{
    const json_t *one;
    size_t i;
    json_array_foreach(unreadable, i, one)
    {
        if (json_object_get(one, "problem"))
            return one;
    }
    return NULL;
}
