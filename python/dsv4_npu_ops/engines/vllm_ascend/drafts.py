HOOKS = ()
