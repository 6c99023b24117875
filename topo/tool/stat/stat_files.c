/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat: finds the files on this host and reads them. */
#include "config.h"
#include "topo/tool/stat/stat_look.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugin/base/log.h"
#include "plugin/base/param.h"

static void add_file(struct stat_list *list, const char *path, bool named)
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
    } else if (rc != -ENOENT || named) { /* else the file has gone: its process has just finished */
        if (err.code == -EBADMSG)        /* the reason explains this errno */
            pvn_err_set_fault(&err, PVN_FAULT_USAGE);
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

/* Adds the files of a directory; pid: only those of this process, or NULL for all. */
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
            add_file(list, path, false);
        free(entries[i]);
    }
    free(entries);
}

glob_t stat_directories(char *sysfs, size_t len)
{
    struct pvn_err err = PVN_ERR_INIT;
    char dir[PVN_PARAM_STR_LEN + 32];
    glob_t found = {0};
    pvn_log_set_level(PVN_LOG_WARN);
    pvn_params_load(&err);
    const char *param = pvn_params_get()->stats_dir;
    if (sysfs)
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
        add_file(list, arg, true);
        return;
    }
    for (size_t i = 0; i < dirs->gl_pathc; i++)
        add_dir(list, dirs->gl_pathv[i], arg);
    if (list->n + list->unread == before) {
        tool_error("process %s has no statistics file", arg);
        list->unread++;
    }
}

void stat_read_from(struct stat_list *list, const glob_t *dirs, int argc, char **argv)
{
    list->here = argc == 0;
    for (int i = 0; i < argc; i++)
        add_argument(list, dirs, argv[i]);
    for (size_t i = 0; argc == 0 && i < dirs->gl_pathc; i++)
        add_dir(list, dirs->gl_pathv[i], NULL);
}

void stat_read(struct stat_list *list)
{
    glob_t dirs = stat_directories(NULL, 0);
    stat_read_from(list, &dirs, 0, NULL);
    globfree(&dirs);
}
