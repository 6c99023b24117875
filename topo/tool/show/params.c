/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo params: the plugin's parameters with the values that it would take from this
 * environment, and NCCL's other variables that are set. */
#include "topo/tool/show/show.h"

#include <jansson.h>

#include "plugin/base/log.h"
#include "plugin/base/nccl_vars.h"
#include "plugin/base/param.h"
#include "plugin/seal/seal_begin.h"
#include "topo/tool/base/json.h"

extern char **environ;

static json_t *row(const struct pvn_param_def *def, size_t index, const struct pvn_params *params)
{
    static const char *const types[] = {"bool", "int",    "size", "duration",
                                        "enum", "string", "list", "network"};
    static const char *const sources[] = {"default", "environment", "alias"};
    char text[PVN_PARAM_STR_LEN], name[128];
    json_t *o = json_object();
    snprintf(name, sizeof(name), PVN_PARAM_PREFIX "%s", def->name);
    json_object_set_new(o, "name", json_string(name));
    json_object_set_new(o, "alias", def->alias ? json_string(def->alias) : json_null());
    json_object_set_new(o, "type", json_string(types[def->type]));
    json_object_set_new(o, "unit", def->unit ? json_string(def->unit) : json_null());
    json_object_set_new(o, "default", json_string(def->def));
    json_object_set_new(o, "value", json_string(pvn_param_format(def, params, text, sizeof(text))));
    json_object_set_new(o, "source", json_string(sources[params->source[index]]));
    json_object_set_new(o, "range", json_string(pvn_param_range(def, text, sizeof(text))));
    json_object_set_new(o, "help", json_string(def->help));
    return o;
}

/* Lists NCCL's variables in `envp` that are not aliases of parameters. */
static json_t *variables(char *const *envp)
{
    json_t *list = json_array();
    char name[PVN_NCCL_VAR_LEN], shown[PVN_PARAM_STR_LEN];
    const char *value;
    for (; *envp; envp++) {
        const struct pvn_nccl_var *var = pvn_nccl_var_of_entry(*envp, name, &value);
        if (!var || !value[0])
            continue;
        tool_escape(value, shown, sizeof(shown));
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:s, s:b, s:s}", "name", name, "value", shown,
                                        "use", pvn_nccl_use_name(var->use), "missed",
                                        pvn_nccl_var_is_missed(var, value), "text", var->text));
    }
    return list;
}

int tool_key_contradicts(const struct pvn_params *params, struct pvn_err *err)
{
    struct pvn_key *none = NULL;
    if (params->encrypt == PVN_ENCRYPT_AUTO ||
        (params->key_file[0] && params->transport != PVN_TRANSPORT_RDMA))
        return 0;
    return pvn_seal_take_key(params, &none, err);
}

/* Prints on stderr why the plugin would not start, or would make no connection. Returns an exit
 * status. */
static int report_refusal(void)
{
    struct pvn_err err = PVN_ERR_INIT;
    char text[PVN_ERR_TEXT_LEN];
    if (pvn_params_load(&err) < 0) {
        pvn_err_format(&err, text, sizeof(text));
        tool_error("the plugin would refuse to start: %s", text);
        return TOOL_FOUND;
    }
    if (tool_key_contradicts(pvn_params_get(), &err) < 0) {
        tool_error("the plugin would make no connection: %s", err.reason[0]);
        return TOOL_FOUND;
    }
    return TOOL_OK;
}

int cmd_params(struct tool *t, int argc, char **argv)
{
    static char *const none[] = {NULL};
    char *const *envp = t->ignore_env ? none : environ;
    size_t count = 0;
    int status = TOOL_OK;
    (void)argv;
    if (argc > 0) {
        tool_error("params takes no arguments; set the variables in the environment");
        return TOOL_USAGE;
    }
    pvn_log_set_level(PVN_LOG_WARN);
    if (!t->ignore_env)
        status = report_refusal();
    if (t->json) {
        const struct pvn_param_def *table = pvn_param_table(&count);
        json_t *list = json_array();
        for (size_t i = 0; i < count; i++)
            json_array_append_new(list, row(&table[i], i, pvn_params_get()));
        if (json_params(t, list, variables(envp)) != TOOL_OK)
            status = TOOL_INPUT;
    } else {
        pvn_params_print(t->out, pvn_params_get());
        pvn_nccl_vars_print(t->out, envp);
    }
    pvn_params_unload();
    return status;
}
