/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat: the statistics that running, hanging and dead processes have left. */
#include "config.h"
#include "topo/tool/stat_adapters.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin/base/log.h"
#include "plugin/base/param.h"

/* ---- which files ---- */

static void add(struct stat_list *list, const char *path, bool named)
{
    struct pvn_err err = PVN_ERR_INIT;
    char text[PVN_ERR_TEXT_LEN];
    int rc = named ? stat_add_saved(list, path) : 1;
    if (rc <= 0) {
        list->unread += rc < 0;
        list->saved = true;
        return;
    }
    struct pvn_stats *f = stat_list_next(list);
    rc = f ? pvn_stats_read(path, f, &err) : -ENOMEM;
    if (!f) {
        list->unread++;
    } else if (rc == 0) {
        list->n++;
    } else if (rc != -ENOENT || named) { /* else its process has just finished */
        pvn_err_format(&err, text, sizeof(text));
        tool_error("%s: %s", path, text);
        list->unread++;
    }
}

static int by_number(const struct dirent **a, const struct dirent **b)
{
    return strverscmp((*a)->d_name, (*b)->d_name);
}

static int is_stat(const struct dirent *e)
{
    size_t n = strlen(e->d_name), suffix = strlen(PVN_STATS_SUFFIX);
    return n > suffix && strcmp(e->d_name + n - suffix, PVN_STATS_SUFFIX) == 0;
}

/* The files of a directory; pid: NULL, or of this process only. */
static void add_dir(struct stat_list *list, const char *dir, const char *pid)
{
    struct dirent **entries = NULL;
    int n = scandir(dir, &entries, is_stat, by_number);
    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name;
        char path[PATH_MAX];
        size_t len = pid ? strlen(pid) : 0;
        snprintf(path, sizeof(path), "%s/%s", dir, name);
        if (!pid || (strncmp(name, pid, len) == 0 && name[len] == '-'))
            add(list, path, false);
        free(entries[i]);
    }
    free(entries);
}

/* Where the plugin of this environment keeps its files; for root, the directories of all users. Also
 * where it finds sysfs. */
static glob_t directories(char *sysfs, size_t len)
{
    struct pvn_err err = PVN_ERR_INIT;
    char dir[PVN_PARAM_STR_LEN + 32];
    glob_t found = {0};
    pvn_log_set_level(PVN_LOG_WARN);
    pvn_params_load(&err);
    const char *param = pvn_params_get()->stats_dir;
    snprintf(sysfs, len, "%s", pvn_params_get()->sysfs_root);
    if (strcmp(param, "none") == 0)
        param = "";
    if (param[0] == '\0' && geteuid() == 0)
        snprintf(dir, sizeof(dir), PVN_STATS_DEFAULT_DIR "*");
    else
        pvn_stats_dir_name(param, geteuid(), dir, sizeof(dir));
    glob(dir, param[0] ? GLOB_NOCHECK : 0, NULL, &found);
    pvn_params_unload();
    return found;
}

static bool is_pid(const char *s)
{
    return s[0] != '\0' && s[strspn(s, "0123456789")] == '\0';
}

static void add_argument(struct stat_list *list, const glob_t *dirs, const char *arg)
{
    int before = list->n + list->unread;
    if (!is_pid(arg)) {
        add(list, arg, true);
        return;
    }
    for (size_t i = 0; i < dirs->gl_pathc; i++)
        add_dir(list, dirs->gl_pathv[i], arg);
    if (list->n + list->unread == before) {
        tool_error("process %s has no statistics file", arg);
        list->unread++;
    }
}

/* Removes as the directory's owner: root must not follow a link that a user made. */
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

static bool anything_wrong(const struct stat_list *list)
{
    for (int i = 0; i < list->n; i++) {
        for (int k = 0; k < list->file[i].nrows; k++) {
            if (stat_trouble(&list->file[i], &list->file[i].row[k]) != STAT_FINE)
                return true;
        }
    }
    return false;
}

static int show(const struct tool *t, const struct stat_list *list, const char *sysfs)
{
    struct stat_adapters adapters;
    int status = anything_wrong(list) ? TOOL_FOUND : TOOL_OK;
    if (t->prom && list->saved) {
        tool_error(
            "--prom is for processes of this host: what was saved as JSON has no times of day");
        return TOOL_USAGE;
    }
    stat_adapters_read(t, list, sysfs, &adapters);
    if (t->json) {
        int rc = stat_print_json(t, list, json_adapters(adapters.topo, NULL, &adapters.look));
        status = rc == TOOL_OK ? status : rc;
    } else if (t->prom) {
        stat_print_prom(t, list);
        stat_print_prom_adapters(t, &adapters);
        status = TOOL_OK; /* what is wrong is in the metrics */
    } else {
        stat_print(t, list);
        stat_print_adapters(t, &adapters);
    }
    stat_adapters_free(&adapters);
    return list->unread ? TOOL_INPUT : status;
}

/* The default directories of other users, which this one may not read. */
static void say_others(const struct tool *t)
{
    glob_t all = {0};
    glob(PVN_STATS_DEFAULT_DIR "*", 0, NULL, &all);
    for (size_t i = 0; i < all.gl_pathc; i++) {
        const char *dir = all.gl_pathv[i];
        const struct passwd *owner;
        struct stat st;
        if (lstat(dir, &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid == geteuid())
            continue;
        owner = getpwuid(st.st_uid);
        fprintf(t->out, "%s is of user %s%s%u%s: only that user and root can read it\n", dir,
                owner ? owner->pw_name : "", owner ? " (" : "", (unsigned)st.st_uid,
                owner ? ")" : "");
    }
    globfree(&all);
}

static void say_nothing_there(const struct tool *t, const glob_t *dirs)
{
    fputs("no statistics files", t->out);
    for (size_t i = 0; i < dirs->gl_pathc; i++)
        fprintf(t->out, "%s%s", i ? ", " : " in ", dirs->gl_pathv[i]);
    fprintf(t->out, ": no process of %s has used the plugin, or all have finished well\n",
            geteuid() == 0 ? "any user" : "this user");
    if (geteuid() != 0)
        say_others(t);
}

int cmd_stat(struct tool *t, int argc, char **argv)
{
    struct stat_list list = {0};
    char sysfs[PVN_PARAM_STR_LEN];
    int status;
    if ((t->clean && (argc > 0 || t->json || t->prom)) || (t->json && t->prom)) {
        tool_error("stat takes one of --json, --prom and --clean; --clean takes no arguments");
        return TOOL_USAGE;
    }
    if (t->per_comm && !t->prom) {
        tool_error("--per-comm has no effect without --prom");
        return TOOL_USAGE;
    }
    glob_t dirs = directories(sysfs, sizeof(sysfs));
    if (t->clean) {
        status = clean(t, &dirs);
    } else {
        for (int i = 0; i < argc; i++)
            add_argument(&list, &dirs, argv[i]);
        for (size_t i = 0; argc == 0 && i < dirs.gl_pathc; i++)
            add_dir(&list, dirs.gl_pathv[i], NULL);
        status = show(t, &list, sysfs);
        if (list.n + list.unread == 0 && !t->json && !t->prom)
            say_nothing_there(t, &dirs);
    }
    for (int i = 0; i < list.n; i++)
        pvn_stats_free(&list.file[i]);
    free(list.file);
    globfree(&dirs);
    return status;
}
