"""For maintainers: the sources of another upstream version, read as text, against ``facts/``.

Nothing that is read here is imported or executed: folders, wheels and archives are parsed with
:mod:`ast`, so that a version which cannot be installed on this machine can still be compared.

``source`` finds the files, ``modules`` and ``values`` understand Python expressions, ``flags``,
``dataclass_fields``, ``variables`` and ``recipes`` read what the facts speak of, ``against``
compares and ``report`` says so.
"""
