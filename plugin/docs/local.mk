# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# plugin/docs: the pages for users, and nccl-net-pvrdma.7, whose parameters and variables come from the plugin's tables.
# They are installed in folders as they lie here, since they refer to each other.
EXTRA_DIST += plugin/docs/contributing.md plugin/docs/machine.svg
dist_doc_DATA = NEWS plugin/USERS.md
pvn_docsdir = $(docdir)/docs
dist_pvn_docs_DATA = plugin/docs/cluster.md plugin/docs/messages.md plugin/docs/security.md plugin/docs/troubleshooting.md plugin/docs/vsphere.md

# Its own compiler and no libtool, since it has to run here also where the plugin is built for another machine.
pages_sources = plugin/docs/pages.c plugin/base/err.c plugin/base/hints.c plugin/base/nccl_vars.c \
    plugin/base/param_print.c plugin/base/param_table.c plugin/base/param_value.c
EXTRA_DIST += plugin/docs/pages.c plugin/docs/nccl-net-pvrdma.7.in
plugin/docs/pages: $(pages_sources) plugin/base/err.h plugin/base/hints.h plugin/base/nccl_vars.h plugin/base/param.h config.h
	$(AM_V_GEN)$(MKDIR_P) plugin/docs && cd $(srcdir) && \
	    $(CC_FOR_BUILD) -std=gnu11 -O1 -DHAVE_CONFIG_H -I$(abs_builddir) -I. -Iplugin -o $(abs_builddir)/$@ $(pages_sources)

plugin/docs/nccl-net-pvrdma.7: plugin/docs/nccl-net-pvrdma.7.in plugin/docs/pages
	$(AM_V_GEN)plugin/docs/pages parameters >$@.parameters && plugin/docs/pages variables >$@.variables && \
	    sed -e '/^@PARAMETERS@$$/{' -e 'r $@.parameters' -e 'd' -e '}' \
	    -e '/^@VARIABLES@$$/{' -e 'r $@.variables' -e 'd' -e '}' $(srcdir)/plugin/docs/nccl-net-pvrdma.7.in >$@.new && \
	    mv $@.new $@
man_MANS = plugin/docs/nccl-net-pvrdma.7
CLEANFILES += plugin/docs/pages plugin/docs/nccl-net-pvrdma.7 plugin/docs/nccl-net-pvrdma.7.parameters plugin/docs/nccl-net-pvrdma.7.variables plugin/docs/nccl-net-pvrdma.7.new
