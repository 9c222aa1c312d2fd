# What `cmake --install` puts where. Plugins lie at PREFIX/lib/isogate/plugins, where the program looks for them.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_DATADIR}/cmake/isogate-sdk)

install(TARGETS isogate RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS ${ISOGATE_PLUGINS} LIBRARY DESTINATION lib/isogate/plugins)
# It lives among tenants, who may run it and nothing else: nobody may trace a process of a file that cannot be read.
install(TARGETS isogate-runner RUNTIME DESTINATION lib/isogate
  PERMISSIONS OWNER_EXECUTE GROUP_EXECUTE WORLD_EXECUTE)
install(FILES docs/isogate.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES docs/completions/isogate.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME isogate)
install(FILES docs/completions/_isogate DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES docs/completions/isogate.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(FILES LICENSE README.md SECURITY.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md" PATTERN "openapi.*"
  PATTERN "*.py" EXCLUDE PATTERN completions EXCLUDE)
install(DIRECTORY configs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples)
foreach(name IN ITEMS docker k8s local namespace)
  install(FILES plugins/${name}/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/plugins/${name})
endforeach()

# For authors of plugins: find_package(isogate-sdk), then isogate_sdk_plugin(NAME [RUNNER_LINK] sources…).
install(DIRECTORY sdk/include/isogate DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES sdk/plugin.map DESTINATION ${CMAKE_INSTALL_DATADIR}/isogate)
install(DIRECTORY sdk/runner_link DESTINATION ${CMAKE_INSTALL_DATADIR}/isogate PATTERN CMakeLists.txt EXCLUDE)
install(DIRECTORY sdk/examples DESTINATION ${CMAKE_INSTALL_DOCDIR}/sdk)
install(FILES sdk/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/sdk)
# Links of the pages lead to what is installed elsewhere.
foreach(pair IN ITEMS "configs|${CMAKE_INSTALL_FULL_DOCDIR}/examples" "deploy|${CMAKE_INSTALL_FULL_DATADIR}/isogate/deploy"
    "sdk/plugin.map|${CMAKE_INSTALL_FULL_DATADIR}/isogate/plugin.map" "sdk/include|${CMAKE_INSTALL_FULL_INCLUDEDIR}")
  string(REGEX MATCH "^([^|]*)[|](.*)$" pair "${pair}")
  set(name ${CMAKE_MATCH_1})
  set(target ${CMAKE_MATCH_2})
  get_filename_component(place "${CMAKE_INSTALL_FULL_DOCDIR}/${name}" DIRECTORY)
  file(RELATIVE_PATH target "${place}" "${target}")
  install(CODE "set(place \"${CMAKE_INSTALL_DOCDIR}/${name}\")  # which may be absolute
    cmake_path(ABSOLUTE_PATH place BASE_DIRECTORY \"\${CMAKE_INSTALL_PREFIX}\")
    file(CREATE_LINK \"${target}\" \"\$ENV{DESTDIR}\${place}\" SYMBOLIC)")
endforeach()
configure_package_config_file(cmake/isogate-sdk-config.cmake.in ${CMAKE_BINARY_DIR}/isogate-sdk-config.cmake
  INSTALL_DESTINATION ${package_dir} PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_DATADIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/isogate-sdk-config-version.cmake
  COMPATIBILITY SameMajorVersion ARCH_INDEPENDENT)
install(FILES ${CMAKE_BINARY_DIR}/isogate-sdk-config.cmake ${CMAKE_BINARY_DIR}/isogate-sdk-config-version.cmake
  DESTINATION ${package_dir})

# The unit names the program by its installed path.
configure_file(deploy/systemd/isogate.service.in ${CMAKE_BINARY_DIR}/isogate.service @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/isogate.service DESTINATION lib/systemd/system)
install(DIRECTORY deploy/compose deploy/helm deploy/k8s deploy/sandbox-image DESTINATION ${CMAKE_INSTALL_DATADIR}/isogate/deploy
  USE_SOURCE_PERMISSIONS)
install(FILES deploy/systemd/sysusers.conf DESTINATION lib/sysusers.d RENAME isogate.conf)
