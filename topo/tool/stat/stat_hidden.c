/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat: directories of other users, whose processes may have files that this user cannot
 * read, and this user's directory if its processes cannot create files there (stat_room.h). */
#include "config.h"

#include <jansson.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin/base/param.h"
#include "topo/hosts/host_list.h"
#include "topo/tool/base/json.h"
#include "topo/tool/stat/stat_hidden.h"
#include "topo/tool/stat/stat_room.h"

/* True if NCCL_PVRDMA_STATS_DIR names no directory, so that each user has one of its own. */
static bool each_its_own(void)
{
    struct pvn_err err = PVN_ERR_INIT;
    pvn_params_load(&err);
    bool own = pvn_params_get()->stats_dir[0] == '\0';
    pvn_params_unload();
    return own;
}

json_t *stat_hidden(void)
{
    json_t *all = json_array();
    glob_t found = {0};
    if (each_its_own())
        glob(PVN_STATS_DEFAULT_DIR "*", 0, NULL, &found);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *dir = found.gl_pathv[i];
        const struct passwd *owner;
        struct stat st;
        char user[24];
        if (lstat(dir, &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid == geteuid() ||
            access(dir, R_OK | X_OK) == 0)
            continue;
        owner = getpwuid(st.st_uid);
        snprintf(user, sizeof(user), "%u", (unsigned)st.st_uid);
        json_array_append_new(all, json_pack("{soso}", "directory", json_text(dir), "user",
                                             json_text(owner ? owner->pw_name : user)));
    }
    globfree(&found);
    stat_room_look(all);
    return all;
}

size_t stat_hidden_in(const json_t *doc)
{
    return json_array_size(json_object_get(doc, "unreadable"));
}

void stat_print_hidden(const struct tool *t, const json_t *hidden)
{
    const json_t *one;
    size_t i;
    json_array_foreach(hidden, i, one)
    {
        const char *problem = json_string_value(json_object_get(one, "problem"));
        char text[1000], shown[1200];
        if (problem)
            snprintf(
                text, sizeof(text),
                "no statistics file can be made: %.400s, so a process that uses the plugin is not seen "
                "here -> %.400s",
                problem, json_string_value(json_object_get(one, "remedy")));
        else
            snprintf(
                text, sizeof(text),
                "not readable: %s, of user %s: only that user and root can see if processes there "
                "use the plugin",
                json_string_value(json_object_get(one, "directory")),
                json_string_value(json_object_get(one, "user")));
        tool_wrap(t, 0, 4, tool_escape(text, shown, sizeof(shown)));
    }
}

int stat_print_hidden_hosts(const struct tool *t, const struct tool_answer *list, int n)
{
    const char **host = calloc((size_t)n + 1, sizeof(*host));
    char names[600], text[1400], shown[1600];
    const json_t *first = NULL, *room = NULL;
    int hosts = 0, without = 0;
    for (int i = 0; host && i < n; i++) {
        const json_t *all = json_object_get(list[i].doc, "unreadable");
        if (!stat_room_in(all))
            continue;
        room = room ? room : stat_room_in(all);
        host[without++] = list[i].host;
    }
    if (without > 0) {
        const char *problem = json_string_value(json_object_get(room, "problem"));
        const char *remedy = json_string_value(json_object_get(room, "remedy"));
        snprintf(
            text, sizeof(text),
            "no statistics file can be made on %s: %.300s, so a process that uses the plugin is not "
            "seen there -> %.400s",
            pvn_topo_hosts_fold(host, without, names, sizeof(names)), problem ? problem : "",
            remedy ? remedy : "look there");
        tool_wrap(t, 0, 4, tool_escape(text, shown, sizeof(shown)));
    }
    for (int i = 0; host && i < n; i++) {
        const json_t *all = json_object_get(list[i].doc, "unreadable"),
                     *one = json_array_get(all, 0);
        if (!one || json_object_get(one, "problem"))
            continue;
        first = first ? first : one;
        host[hosts++] = list[i].host;
    }
    if (hosts > 0) {
        const char *user = json_string_value(json_object_get(first, "user"));
        snprintf(text, sizeof(text),
                 "not readable on %s: the files of other users' processes (of %s, for example): "
                 "only they and root can see what these do",
                 pvn_topo_hosts_fold(host, hosts, names, sizeof(names)), user ? user : "somebody");
        tool_wrap(t, 0, 4, tool_escape(text, shown, sizeof(shown)));
    }
    free(host);
    return hosts + without;
}
