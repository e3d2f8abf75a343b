-- A workflow is written at each step. Pages with room take the new version of a row without a new entry in every index (a HOT update).
alter table workflow set (fillfactor = 50);
