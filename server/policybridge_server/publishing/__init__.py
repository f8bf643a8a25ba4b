"""New versions under running compilers: publication, compatibility, retention, and the watcher of folders."""
