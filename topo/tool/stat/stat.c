/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat: the statistics of running, hanging and dead processes. */
#include "config.h"
#include "topo/tool/stat/stat_hidden.h"
#include "topo/tool/stat/stat_room.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin/base/param.h"

/* Removes files as the directory's owner, because root must not follow a link that a user made. */
static int clean(const struct tool *t, const glob_t *dirs)
{
    int gone = 0, status = TOOL_OK;
    for (size_t i = 0; i < dirs->gl_pathc; i++) {
        const char *dir = dirs->gl_pathv[i];
        int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        struct stat st;
        if (fd < 0 && errno == ENOENT)
            continue;
        if (fd < 0 || fstat(fd, &st) != 0) {
            tool_error("%s: %m", dir);
            status = TOOL_INPUT;
        } else {
            gone += pvn_stats_sweep(fd, geteuid() == 0 ? st.st_uid : geteuid(), true);
        }
        if (fd >= 0)
            close(fd);
    }
    fprintf(t->out, "%d file%s of dead processes removed\n", gone, gone == 1 ? "" : "s");
    return status;
}

/* Prints that there are no files. Root reads all users' directories, of which there may be none.
 * hidden: the directories that stat_print_hidden will report. */
static void say_nothing_there(const struct tool *t, const glob_t *dirs, const json_t *hidden)
{
    fputs("no statistics files", t->out);
    for (size_t i = 0; i < dirs->gl_pathc; i++)
        fprintf(t->out, "%s%s", i ? ", " : " in ", dirs->gl_pathv[i]);
    if (stat_room_in(hidden))
        fputc('\n', t->out);
    else
        fprintf(t->out, ": no process of %s has used the plugin, or all have finished well\n",
                geteuid() == 0 ? "any user" : "this user");
}

/* Prints that the saved documents had no process. */
static void say_nothing_saved(const struct tool *t, int n, char **files)
{
    char name[256];
    if (n == 1)
        fprintf(t->out, "no process in %s", tool_escape(files[0], name, sizeof(name)));
    else
        fprintf(t->out, "no process in %d files", n);
    fputs(": none used the plugin there when that was saved, or all had finished well\n", t->out);
}

static bool usable(const struct tool *t, int argc)
{
    const char *wrong = NULL;
    if ((t->clean && (argc > 0 || t->json || t->prom)) || (t->json && t->prom))
        wrong = "stat takes one of --json, --prom and --clean; --clean takes no arguments";
    else if (t->per_comm && !t->prom)
        wrong = "--per-comm has no effect without --prom";
    else if (t->hosts && (argc > 0 || t->prom || t->clean))
        wrong = "stat --hosts takes no files or processes, no --prom and no --clean";
    else if (t->watch_s > 0 && (t->prom || t->clean))
        wrong = "stat --watch has no --prom and no --clean, which take one look; node_exporter's "
                "collector reads what --prom writes again and again";
    else if (t->count && t->watch_s == 0)
        wrong = "--count has no effect without --watch";
    if (wrong)
        tool_error("%s", wrong);
    return !wrong;
}

int cmd_stat(struct tool *t, int argc, char **argv)
{
    struct stat_list list = {0};
    char sysfs[PVN_PARAM_STR_LEN];
    int status;
    if (!usable(t, argc))
        return TOOL_USAGE;
    if (t->watch_s > 0)
        return stat_watch(t, argc, argv);
    if (t->hosts)
        return stat_hosts(t);
    if (argc == 0 && !t->prom && !t->clean && stat_meet(t, &status))
        return status;
    glob_t dirs = stat_directories(sysfs, sizeof(sysfs));
    if (t->clean) {
        status = clean(t, &dirs);
    } else {
        stat_read_from(&list, &dirs, argc, argv);
        status = stat_show(t, &list, sysfs);
        bool nothing = list.n + list.unread == 0, text = !t->json && !t->prom;
        json_t *hidden = argc == 0 ? stat_hidden() : NULL;
        if (nothing && text && argc > 0)
            say_nothing_saved(t, argc, argv);
        else if (nothing && text)
            say_nothing_there(t, &dirs, hidden);
        if (text)
            stat_print_hidden(t, hidden);
        if (nothing && json_array_size(hidden) > 0 && status == TOOL_OK)
            status = TOOL_INPUT;
        json_decref(hidden);
    }
    stat_list_free(&list);
    globfree(&dirs);
    return status;
}
