# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# plugin/packaging: `make deb`, `make rpm`: packages of the source archive, in the build tree's packages/.
PVN_PACKAGES = $(abs_builddir)/packages
RPMBUILD_OPTIONS =

deb:
	$(MAKE) $(AM_MAKEFLAGS) dist-xz
	$(srcdir)/plugin/packaging/deb.sh $(distdir).tar.xz $(PVN_PACKAGES)/deb

rpm:
	$(MAKE) $(AM_MAKEFLAGS) dist-xz
	$(srcdir)/plugin/packaging/rpm.sh $(distdir).tar.xz $(PVN_PACKAGES)/rpm $(RPMBUILD_OPTIONS)

clean-packages:
	rm -rf $(PVN_PACKAGES)
clean-local: clean-packages
.PHONY: deb rpm clean-packages

EXTRA_DIST += plugin/packaging/debian/changelog plugin/packaging/debian/control plugin/packaging/debian/copyright \
    plugin/packaging/debian/libnccl-net-pvrdma.docs plugin/packaging/debian/libnccl-net-pvrdma.install \
    plugin/packaging/debian/libnccl-net-pvrdma.lintian-overrides plugin/packaging/debian/libnccl-net-pvrdma.triggers \
    plugin/packaging/debian/pvn-tools.lintian-overrides plugin/packaging/README.md \
    plugin/packaging/debian/pvn-tools.install plugin/packaging/debian/source/format \
    plugin/packaging/rpm/nccl-net-pvrdma.spec
dist_noinst_SCRIPTS += plugin/packaging/deb.sh plugin/packaging/rpm.sh plugin/packaging/debian/rules
